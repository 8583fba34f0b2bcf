//! Reading a parameter's value: the words given, to the text that is kept.

use crate::config::params::{Kind, Param};
use crate::number::parse_i64;

/// Why a value is refused, as Redis words it.
pub type Refusal = String;

/// Turns the words of a directive into the text that `CONFIG GET` shows.
///
/// # Errors
/// The text that Redis gives after `CONFIG SET failed (possibly related to argument ...) - `.
pub fn read(param: &Param, words: &[&[u8]]) -> Result<Vec<u8>, Refusal> {
    match param.kind {
        Kind::SavePoints => return save_points(words),
        Kind::OutputLimits => return Err("Wrong number of arguments in buffer limit configuration.".into()),
        Kind::Percentiles => return percentiles(words),
        Kind::Words { min, max } => {
            if !(min..=max).contains(&words.len()) {
                return Err("wrong number of arguments".into());
            }
            return Ok(words.join(&b' '));
        }
        _ => {}
    }
    let [word] = words else { return Err("wrong number of arguments".into()) };
    match param.kind {
        Kind::Bool => boolean(word),
        Kind::Int { min, max } => integer(word, min, max),
        Kind::Memory { min, max } => memory(word, min, max),
        Kind::Octal => octal(word),
        Kind::Choice(names) => choice(word, names),
        Kind::FileName if word.contains(&b'/') => {
            Err(format!("{} can't be a path, just a filename", param.name))
        }
        Kind::FileName if word.is_empty() => Err(format!("{} can't be empty", param.name)),
        _ => Ok(word.to_vec()),
    }
}

fn boolean(word: &[u8]) -> Result<Vec<u8>, Refusal> {
    match word.to_ascii_lowercase().as_slice() {
        text @ (b"yes" | b"no") => Ok(text.to_vec()),
        _ => Err("argument must be 'yes' or 'no'".into()),
    }
}

fn integer(word: &[u8], min: i64, max: i64) -> Result<Vec<u8>, Refusal> {
    let Some(number) = parse_i64(word) else {
        return Err("argument couldn't be parsed into an integer".into());
    };
    if !(min..=max).contains(&number) {
        return Err(format!("argument must be between {min} and {max} inclusive"));
    }
    Ok(word.to_vec())
}

fn memory(word: &[u8], min: u64, max: u64) -> Result<Vec<u8>, Refusal> {
    let Some(bytes) = parse_memory(word) else { return Err("argument must be a memory value".into()) };
    if !(min..=max).contains(&bytes) {
        return Err(format!("argument must be between {min} and {max} inclusive"));
    }
    Ok(bytes.to_string().into_bytes())
}

/// A number of bytes with one of Redis's units: `k` is 1000, `kb` is 1024, and so on.
pub fn parse_memory(word: &[u8]) -> Option<u64> {
    let digits = word.iter().take_while(|b| b.is_ascii_digit()).count();
    let number: u64 = std::str::from_utf8(&word[..digits]).ok()?.parse().ok()?;
    let unit: u64 = match word[digits..].to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
}

fn octal(word: &[u8]) -> Result<Vec<u8>, Refusal> {
    let number = std::str::from_utf8(word).ok().and_then(|text| u32::from_str_radix(text, 8).ok());
    match number {
        Some(mode) if mode <= 0o777 => Ok(format!("{mode:o}").into_bytes()),
        Some(_) => Err("argument must be between 0 and 777 inclusive".into()),
        None => Err("argument couldn't be parsed into an integer".into()),
    }
}

fn choice(word: &[u8], names: &[&str]) -> Result<Vec<u8>, Refusal> {
    match names.iter().find(|n| n.as_bytes().eq_ignore_ascii_case(word)) {
        Some(name) => Ok(name.as_bytes().to_vec()),
        None => Err(format!("argument(s) must be one of the following: {}", names.join(", "))),
    }
}

fn save_points(words: &[&[u8]]) -> Result<Vec<u8>, Refusal> {
    if words.is_empty() || words == [b""] {
        return Ok(Vec::new());
    }
    let invalid = || Refusal::from("Invalid save parameters");
    if words.len() % 2 != 0 {
        return Err(invalid());
    }
    for pair in words.chunks(2) {
        let seconds = parse_i64(pair[0]).ok_or_else(invalid)?;
        let changes = parse_i64(pair[1]).ok_or_else(invalid)?;
        if seconds < 1 || changes < 0 {
            return Err(invalid());
        }
    }
    Ok(words.join(&b' '))
}

fn percentiles(words: &[&[u8]]) -> Result<Vec<u8>, Refusal> {
    const NAME: &str = "latency-tracking-info-percentiles";
    if words == [b""] {
        return Ok(Vec::new());
    }
    let mut texts = Vec::new();
    for word in words {
        let number: Option<f64> = std::str::from_utf8(word).ok().and_then(|w| w.parse().ok());
        match number {
            Some(p) if (0.0..=100.0).contains(&p) => texts.push(p.to_string()),
            Some(_) => return Err(format!("{NAME} parameters should sit between [0.0,100.0]")),
            None => return Err(format!("Invalid {NAME} parameters")),
        }
    }
    Ok(texts.join(" ").into_bytes())
}

/// The classes of `client-output-buffer-limit` in the order in which they are shown.
const CLASSES: [&str; 3] = ["normal", "slave", "pubsub"];

/// Merges `class hard soft seconds` groups into the present limits.
///
/// # Errors
/// Redis's texts.
pub fn merge_output_limits(present: &[u8], words: &[&[u8]]) -> Result<Vec<u8>, Refusal> {
    if words.is_empty() || words.len() % 4 != 0 {
        return Err("Wrong number of arguments in buffer limit configuration.".into());
    }
    let mut shown: Vec<Vec<u8>> = present.split(|&b| b == b' ').map(<[u8]>::to_vec).collect();
    for group in words.chunks(4) {
        let class = match group[0].to_ascii_lowercase().as_slice() {
            b"replica" => "slave".to_owned(),
            other => String::from_utf8_lossy(other).into_owned(),
        };
        let Some(index) = CLASSES.iter().position(|c| *c == class) else {
            return Err("Invalid client class specified in buffer limit configuration.".into());
        };
        let numbers = (parse_memory(group[1]), parse_memory(group[2]), parse_i64(group[3]));
        let (Some(hard), Some(soft), Some(seconds @ 0..)) = numbers else {
            return Err("Error in hard, soft or soft_seconds setting in buffer limit configuration.".into());
        };
        for (offset, number) in [hard, soft, seconds as u64].into_iter().enumerate() {
            shown[index * 4 + 1 + offset] = number.to_string().into_bytes();
        }
    }
    Ok(shown.join(&b' '))
}
