//! Units as text: words with blanks between, commands with bars.

/// The commands of a unit, word by word.
pub fn commands(unit: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let (mut commands, mut at) = (Vec::new(), 0);
    let number = |at: &mut usize| {
        let len = unit[*at..].iter().position(|byte| *byte == b'\r').unwrap();
        let number: usize = std::str::from_utf8(&unit[*at + 1..*at + len]).unwrap().parse().unwrap();
        *at += len + 2;
        number
    };
    while at < unit.len() {
        let count = number(&mut at);
        let words = (0..count).map(|_| {
            let len = number(&mut at);
            at += len + 2;
            unit[at - len - 2..at - 2].to_vec()
        });
        commands.push(words.collect());
    }
    commands
}

pub fn shown(unit: &[u8]) -> String {
    let word = |word: &Vec<u8>| match word.len() {
        0 => "''".to_owned(),
        1..60 => word.escape_ascii().to_string(),
        len => format!("({len} bytes)"),
    };
    let line = |words: &Vec<Vec<u8>>| words.iter().map(word).collect::<Vec<_>>().join(" ");
    commands(unit).iter().map(line).collect::<Vec<_>>().join(" | ")
}

/// The bytes of commands that are given as such a text, without words in quotes.
pub fn unit(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in text.split(" | ") {
        let words: Vec<&str> = line.split(' ').collect();
        stillframe_testkit::encode(&words, &mut bytes);
    }
    bytes
}
