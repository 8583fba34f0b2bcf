//! The tables of the docs are those that follow from the rows of the settings and of the commands. They are written
//! anew by `UPDATE_DOCS=1 cargo test -p stillframe-engine docs_tests`.

use std::path::Path;

use crate::command::Group;
use crate::commands::REGISTRY;
use crate::config::{Kind, Param, SettingEffect, PARAMS, REFUSED};

const END: &str = "<!-- end of the table -->\n";

/// Holds the table of that name in a page against `table`, or puts it there.
fn check(page: &str, name: &str, table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let text = std::fs::read_to_string(&path).unwrap();
    let begin = format!("<!-- table: {name} (docs_tests.rs writes it) -->\n");
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{page} has no {begin}"));
    let (found, after) =
        rest.split_once(END).unwrap_or_else(|| panic!("the table {name} of {page} has no end"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{begin}{table}{END}{after}")).unwrap();
    } else {
        assert_eq!(
            found, table,
            "the table {name} of {page}: UPDATE_DOCS=1 cargo test -p stillframe-engine docs_tests"
        );
    }
}

fn markdown(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = line(&header.iter().map(ToString::to_string).collect::<Vec<_>>());
    text += &format!("|{}\n", "---|".repeat(header.len()));
    for row in rows {
        text += &line(&row.iter().map(|cell| cell.replace('|', "\\|")).collect::<Vec<_>>());
    }
    text
}

/// The settings that are wanted, by name.
fn settings(wanted: impl Fn(&Param) -> bool) -> impl Iterator<Item = &'static Param> {
    let mut found: Vec<_> = PARAMS.iter().filter(|param| wanted(param) && !param.is_hidden).collect();
    found.sort_by_key(|param| param.name);
    found.into_iter()
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn names(param: &Param) -> String {
    [Some(param.name), param.alias].into_iter().flatten().map(code).collect::<Vec<_>>().join(" or ")
}

fn values(kind: Kind) -> String {
    let or_more = |min: &dyn std::fmt::Display| format!("{min} or more");
    match kind {
        Kind::Bool => "yes, no".to_owned(),
        Kind::Int { min, max } if max >= i64::from(i32::MAX) => or_more(&min),
        Kind::Int { min, max } => format!("{min} to {max}"),
        Kind::Memory { min: 0, .. } => "bytes".to_owned(),
        Kind::Memory { min, .. } if min % (1 << 20) == 0 => or_more(&format!("{}mb", min >> 20)),
        Kind::Memory { min, .. } => format!("bytes, {}", or_more(&min)),
        Kind::MemoryOrPercent => "bytes, or a percentage of `maxmemory`".to_owned(),
        Kind::Hertz => "rounds a second".to_owned(),
        Kind::Octal => "an octal number".to_owned(),
        Kind::Choice(names) => names.join(", "),
        Kind::Flags(names) => format!("some of {}", names.join(", ")),
        Kind::Events => "letters of classes of events".to_owned(),
        Kind::Title | Kind::Text => "text".to_owned(),
        Kind::FileName => "a file name".to_owned(),
        Kind::Words { min, max } if min == max => format!("{min} words"),
        Kind::Words { min, max } => format!("{min} to {max} words"),
        Kind::Dir => "a directory".to_owned(),
        Kind::SavePoints => "pairs of seconds and changes".to_owned(),
        Kind::OutputLimits => "class, hard limit, soft limit, seconds".to_owned(),
        Kind::Percentiles => "numbers up to 100".to_owned(),
    }
}

#[test]
fn the_page_of_settings_explains_those_of_its_own() {
    let rows = settings(|param| param.meaning.is_some()).filter_map(|param| {
        let choices = match param.kind {
            Kind::Choice(names) => {
                format!(": {}", names.iter().copied().map(code).collect::<Vec<_>>().join(", "))
            }
            _ => String::new(),
        };
        Some(vec![names(param) + &choices, code(&param.shown_default()), param.meaning?.to_owned()])
    });
    check(
        "docs/guide/settings.md",
        "settings of its own",
        &markdown(&["setting", "default", "meaning"], rows),
    );
}

#[test]
fn the_page_of_settings_lists_all() {
    let with_effect = settings(Param::has_effect).map(|param| {
        let change = match param.effect {
            SettingEffect::Live => "yes",
            SettingEffect::Protected => "if `enable-protected-configs` lets it",
            _ => "no",
        };
        vec![names(param), code(&param.shown_default()), values(param.kind), change.to_owned()]
    });
    let header = ["setting", "default", "values", "`CONFIG SET`"];
    check("docs/guide/settings.md", "with an effect", &markdown(&header, with_effect));

    let refused = settings(|_| true).filter_map(|param| match param.effect {
        SettingEffect::Only(why) | SettingEffect::OnlyAtStart(why) => {
            Some(vec![names(param), code(&param.shown_default()), why.to_owned()])
        }
        _ => None,
    });
    let always = REFUSED.iter().map(|(name, why)| vec![code(name), String::new(), (*why).to_owned()]);
    let header = ["setting", "the values that are taken", "why"];
    check("docs/guide/settings.md", "refused", &markdown(&header, refused.chain(always)));

    let ignored =
        settings(|param| matches!(param.effect, SettingEffect::Ignored | SettingEffect::IgnoredAtStart));
    let rows = ignored.map(|param| vec![names(param), code(&param.shown_default()), values(param.kind)]);
    check("docs/guide/settings.md", "without effect", &markdown(&["setting", "default", "values"], rows));
}

#[test]
fn the_page_of_commands_lists_all() {
    for group in Group::ALL {
        let mut commands: Vec<_> = REGISTRY.rows().iter().filter(|row| row.group == group).collect();
        // Alone they only say what their subcommands are.
        commands.retain(|row| !row.summary.starts_with("A container for"));
        commands.sort_by_key(|row| row.name);
        let rows = commands.into_iter().map(|row| {
            let name = code(&row.name.replace('|', " ").to_uppercase());
            vec![name, row.summary.trim_end_matches('.').to_owned()]
        });
        check("docs/guide/commands.md", group.name(), &markdown(&["command", "what it does"], rows));
    }
}
