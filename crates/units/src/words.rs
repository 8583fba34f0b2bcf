//! Words with quotes and escapes, as inline commands and configuration lines have them.

/// A word is empty text in quotes, or a run of other characters.
#[derive(thiserror::Error, Debug, PartialEq, Eq)]
#[error("unbalanced quotes")]
pub struct Unbalanced;

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | 0x0b | 0x0c)
}

fn hex(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|d| d as u8)
}

/// Calls `give` with each word of `line`, unescaped: `"..."` knows `\xHH \n \r \t \b \a` and takes any other
/// escaped byte as it is, `'...'` knows only `\'`.
///
/// # Errors
/// An open quote, or a closing one that is not followed by a space.
pub fn split(line: &[u8], mut give: impl FnMut(&[u8])) -> Result<(), Unbalanced> {
    let mut at = 0;
    let mut word = Vec::new();
    loop {
        while line.get(at).is_some_and(|&b| is_space(b)) {
            at += 1;
        }
        if matches!(line.get(at), None | Some(0)) {
            return Ok(());
        }
        word.clear();
        at = take_word(line, at, &mut word)?;
        give(&word);
    }
}

/// Takes one word from `at` on and returns where it ends.
fn take_word(line: &[u8], mut at: usize, word: &mut Vec<u8>) -> Result<usize, Unbalanced> {
    while let Some(&byte) = line.get(at) {
        match byte {
            b'"' => return take_double_quoted(line, at + 1, word),
            b'\'' => return take_single_quoted(line, at + 1, word),
            0 => break,
            _ if is_space(byte) => break,
            _ => word.push(byte),
        }
        at += 1;
    }
    Ok(at)
}

fn after_quote(line: &[u8], at: usize) -> Result<usize, Unbalanced> {
    match line.get(at) {
        None | Some(0) => Ok(at),
        Some(&b) if is_space(b) => Ok(at),
        Some(_) => Err(Unbalanced),
    }
}

fn take_double_quoted(line: &[u8], mut at: usize, word: &mut Vec<u8>) -> Result<usize, Unbalanced> {
    loop {
        match line[at.min(line.len())..] {
            [b'\\', b'x', h, l, ..] if hex(h).is_some() && hex(l).is_some() => {
                word.push(hex(h).unwrap_or(0) << 4 | hex(l).unwrap_or(0));
                at += 4;
            }
            [b'\\', escaped, ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => other,
                });
                at += 2;
            }
            [b'"', ..] => return after_quote(line, at + 1),
            [] | [0, ..] => return Err(Unbalanced),
            [other, ..] => {
                word.push(other);
                at += 1;
            }
        }
    }
}

fn take_single_quoted(line: &[u8], mut at: usize, word: &mut Vec<u8>) -> Result<usize, Unbalanced> {
    loop {
        match line[at.min(line.len())..] {
            [b'\\', b'\'', ..] => {
                word.push(b'\'');
                at += 2;
            }
            [b'\'', ..] => return after_quote(line, at + 1),
            [] | [0, ..] => return Err(Unbalanced),
            [other, ..] => {
                word.push(other);
                at += 1;
            }
        }
    }
}

/// The words of a line as owned bytes.
///
/// # Errors
/// Those of [`split`].
pub fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, Unbalanced> {
    let mut words = Vec::new();
    split(line, |word| words.push(word.to_vec()))?;
    Ok(words)
}

/// A word in double quotes that [`split`] reads back (`CONFIG REWRITE`, `MONITOR`).
pub fn quote(word: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in word {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            7 => out.extend_from_slice(b"\\a"),
            8 => out.extend_from_slice(b"\\b"),
            0x20..=0x7e => out.push(byte),
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_text(line: &str) -> Result<Vec<String>, Unbalanced> {
        Ok(words(line.as_bytes())?.into_iter().map(|w| String::from_utf8_lossy(&w).into_owned()).collect())
    }

    #[test]
    fn words_are_those_of_redis() {
        assert_eq!(split_text("  set  a 'b c' \"d\\n\\x41\" ").unwrap(), ["set", "a", "b c", "d\nA"]);
        assert_eq!(split_text("save \"\"").unwrap(), ["save", ""]);
        assert_eq!(split_text("a'b c'").unwrap(), ["ab c"]);
        assert_eq!(split_text("'it\\'s' \"\\q\"").unwrap(), ["it's", "q"]);
        assert_eq!(split_text(""), Ok(vec![]));
        for bad in ["\"a", "'a", "\"a\"b", "'a'b", "\"a\\"] {
            assert_eq!(split_text(bad), Err(Unbalanced), "{bad}");
        }
    }

    #[test]
    fn quoted_words_are_read_back() {
        let every_byte: Vec<u8> = (0..=255).collect();
        let mut quoted = Vec::new();
        quote(&every_byte, &mut quoted);
        assert_eq!(words(&quoted).unwrap(), [every_byte]);
    }
}
