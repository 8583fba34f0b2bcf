//! A page as its readers see it: links and headings, code left out.

use std::collections::{BTreeMap, BTreeSet};

use pulldown_cmark::{BrokenLink, Event, LinkType, Options, Parser, Tag, TagEnd};

/// What a page has of one kind and another.
pub struct Page {
    /// Where its links and pictures lead to, as it says it.
    pub links: Vec<String>,
    /// Links by a name that the page does not explain.
    pub unknown_names: Vec<String>,
    /// What a link may name behind `#`.
    pub anchors: BTreeSet<String>,
}

impl Page {
    pub fn parse(text: &str) -> Page {
        let mut unknown_names = Vec::new();
        let mut note = |link: BrokenLink<'_>| {
            // A word in brackets alone is a word in brackets.
            if !matches!(link.link_type, LinkType::Shortcut | LinkType::ShortcutUnknown) {
                unknown_names.push(link.reference.into_string());
            }
            None
        };
        let options = Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES;
        let (mut links, mut headings, mut heading) = (Vec::new(), Headings::default(), None);
        for event in Parser::new_with_broken_link_callback(text, options, Some(&mut note)) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    links.push(dest_url.into_string());
                }
                Event::Html(html) | Event::InlineHtml(html) => {
                    links.extend(values(&html, "href").chain(values(&html, "src")));
                    headings.found.extend(values(&html, "id").chain(values(&html, "name")));
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => headings.add(&heading.take().unwrap_or_default()),
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                _ => {}
            }
        }
        Page { links, unknown_names, anchors: headings.found }
    }
}

/// Values of an attribute in a piece of HTML.
fn values<'t>(html: &'t str, attribute: &str) -> impl Iterator<Item = String> + 't {
    let open = format!(" {attribute}=\"");
    let ends: Vec<_> = html.match_indices(&open).map(|(start, open)| start + open.len()).collect();
    ends.into_iter().filter_map(|start| Some(html[start..].split_once('"')?.0.to_owned()))
}

/// Anchors, as code hosts make them of headings.
#[derive(Default)]
struct Headings {
    found: BTreeSet<String>,
    counts: BTreeMap<String, usize>,
}

impl Headings {
    fn add(&mut self, heading: &str) {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let slug = kept.collect::<String>().to_lowercase().replace(' ', "-");
        let count = self.counts.entry(slug.clone()).or_default();
        // The second heading of a name has a number.
        self.found.insert(if *count == 0 { slug } else { format!("{slug}-{count}") });
        *count += 1;
    }
}

#[test]
fn links_of_every_form_are_seen() {
    let page = Page::parse(
        "# The `code` of A-B, twice\n[a](a.md) ![b](b.svg \"title\") [c][name] [name] [d][] [see] [over\nlines](f.md)\n\n\
         [name]: c.md#x\n[d]: <d e.md>\n\n<a href=\"g.md\" id=\"here\">g</a>\n\n`[no](no.md)`\n\n```sh\n# no heading\n[no](no.md)\n```\n\n\
         | table |\n|---|\n| [h](h.md) |\n\n## Twice\n## Twice\n[x][unknown] [y][]\n",
    );
    assert_eq!(
        page.links,
        ["a.md", "b.svg", "c.md#x", "c.md#x", "d e.md", "f.md", "g.md", "h.md"],
        "{:?}",
        page.unknown_names
    );
    assert_eq!(page.unknown_names, ["unknown", "y"]);
    let anchors = ["here", "the-code-of-a-b-twice", "twice", "twice-1"].map(str::to_owned);
    assert_eq!(page.anchors, anchors.into());
}
