//! Which file of a kernel module calls which: by the functions that one defines and another names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{Arrows, Module};

/// Without comments, strings and what the preprocessor is told.
fn code_of(text: &str) -> String {
    let (mut code, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(['/', '"', '\'']) {
        code.push_str(&rest[..at]);
        rest = &rest[at..];
        let len = match rest {
            _ if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            _ if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ if rest.starts_with('/') => {
                code.push('/');
                1
            }
            _ => literal_len(rest),
        };
        rest = &rest[len..];
    }
    code.push_str(rest);
    code.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// Of the literal that a text begins with.
fn literal_len(text: &str) -> usize {
    let quote = text.as_bytes()[0];
    let mut bytes = text.bytes().enumerate().skip(1);
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            _ if byte == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Functions that other files may call: their heads begin a line, and so do their braces.
fn functions_of(code: &str) -> Vec<String> {
    let (mut found, mut head) = (Vec::new(), String::new());
    for line in code.lines() {
        if line == "{" && !head.split(|letter| !is_word(letter)).any(|word| word == "static") {
            let name = head
                .split('(')
                .next()
                .and_then(|before| before.rsplit(|letter| !is_word(letter)).find(|word| !word.is_empty()));
            found.extend(name.map(str::to_owned));
        }
        let ends = line.trim().is_empty() || line.ends_with([';', '}']);
        head = if ends { String::new() } else { head + " " + line };
    }
    found
}

/// Words, but for names of structs.
fn words_of(code: &str) -> BTreeSet<&str> {
    let words: Vec<&str> = code.split(|letter| !is_word(letter)).filter(|word| !word.is_empty()).collect();
    let of_struct = |at: usize| at > 0 && words[at - 1] == "struct";
    (0..words.len()).filter(|at| !of_struct(*at)).map(|at| words[at]).collect()
}

/// Which of the files in a directory uses which.
pub fn arrows(directory: &Path) -> Arrows {
    let mut files: BTreeMap<Module, String> = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        // What the build leaves behind is called NAME.mod.c.
        if name.ends_with(".c") && !name.ends_with(".mod.c") {
            files.insert(vec![name], code_of(&std::fs::read_to_string(&path).unwrap()));
        }
    }
    let mut owners: BTreeMap<String, &Module> = BTreeMap::new();
    for (file, code) in &files {
        owners.extend(functions_of(code).into_iter().map(|function| (function, file)));
    }
    let uses = |(file, code): (&Module, &String)| {
        let used = words_of(code).into_iter().filter_map(|word| owners.get(word));
        (file.clone(), used.filter(|owner| **owner != file).map(|owner| (*owner).clone()).collect())
    };
    files.iter().map(uses).collect()
}

#[test]
fn functions_and_uses_are_found() {
    let code = code_of("/* not(this) */\n#define X\nint one(struct two *two)\n{\n\treturn three(\"four()\\\"\");\n}\n\nstatic int five(void)\n{\n}\n");
    assert_eq!(functions_of(&code), ["one"]);
    assert!(words_of(&code).contains("three") && !words_of(&code).contains("four"));
    assert!(words_of("struct six *a").contains("a") && !words_of("struct six *a").contains("six"));
}
