//! Reading a parameter's value: the words given, to the text that is kept.

use crate::config::events::{self, Events};
use crate::config::params::{Kind, Param};
use crate::text::number::parse_i64;

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
        Kind::Flags(names) => return flags(words, names),
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
        Kind::MemoryOrPercent => memory_or_percent(word),
        Kind::Hertz => hertz(word),
        Kind::Title => title(word),
        Kind::Events if word.iter().any(|b| !events::LETTERS.as_bytes().contains(b)) => {
            Err(format!("Invalid event class character. Use '{}'.", events::LETTERS))
        }
        Kind::Events => Ok(Events::of(word).letters()),
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

fn memory_or_percent(word: &[u8]) -> Result<Vec<u8>, Refusal> {
    let unreadable = || Refusal::from("argument must be a memory or percent value");
    let Some(percent) = word.strip_suffix(b"%") else {
        let bytes = parse_memory(word).ok_or_else(unreadable)?;
        return Ok(bytes.to_string().into_bytes());
    };
    match parse_i64(percent) {
        Some(0) => Ok(b"0".to_vec()),
        Some(1..=100) => Ok(word.to_vec()),
        Some(101..) => Err("percentage argument must be less or equal to 100".into()),
        _ => Err(unreadable()),
    }
}

/// The least and the most rounds a second that there are.
const HERTZ: (i64, i64) = (1, 500);

fn hertz(word: &[u8]) -> Result<Vec<u8>, Refusal> {
    integer(word, 0, i64::from(i32::MAX))?;
    let rounds = parse_i64(word).unwrap_or(HERTZ.0).clamp(HERTZ.0, HERTZ.1);
    Ok(rounds.to_string().into_bytes())
}

/// What may stand in the braces of a process title.
const TITLE_VARIABLES: [&str; 7] =
    ["title", "listen-addr", "server-mode", "port", "tls-port", "config-file", "unixsocket"];

fn title(word: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut rest = word;
    let mut is_valid = !word.is_empty();
    while let Some(open) = rest.iter().position(|&b| b == b'{').filter(|_| is_valid) {
        let inner = &rest[open + 1..];
        let close = inner.iter().position(|&b| b == b'}');
        is_valid = close.is_some_and(|end| TITLE_VARIABLES.iter().any(|v| v.as_bytes() == &inner[..end]));
        rest = close.map_or(&[][..], |end| &inner[end + 1..]);
    }
    if !is_valid {
        return Err("template format is invalid or contains unknown variables".into());
    }
    Ok(word.to_vec())
}

/// A number of bytes with one of Redis's units: `k` is 1000, `kb` is 1024, and so on. As in Redis no digits are zero; what
/// is too large is the largest number.
pub fn parse_memory(word: &[u8]) -> Option<u64> {
    let digits = word.iter().take_while(|b| b.is_ascii_digit()).count();
    let add = |number: u64, digit: &u8| number.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    let number = word[..digits].iter().fold(0, add);
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
    Some(number.saturating_mul(unit))
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
    let name = names.iter().find(|n| n.as_bytes().eq_ignore_ascii_case(word));
    name.map(|name| name.as_bytes().to_vec()).ok_or_else(|| not_one_of(names))
}

fn not_one_of(names: &[&str]) -> Refusal {
    format!("argument(s) must be one of the following: {}", names.join(", "))
}

/// Names in the order of `names`; the first one only if there is no other.
fn flags(words: &[&[u8]], names: &[&str]) -> Result<Vec<u8>, Refusal> {
    let given: Vec<Vec<u8>> = words.iter().map(|word| choice(word, names)).collect::<Result<_, _>>()?;
    let (none, others) = names.split_first().ok_or_else(|| not_one_of(names))?;
    let set: Vec<&str> =
        others.iter().copied().filter(|name| given.iter().any(|g| g == name.as_bytes())).collect();
    if given.is_empty() {
        return Err(not_one_of(names));
    }
    if set.contains(&"save") && set.contains(&"nosave") {
        return Err("shutdown options SAVE and NOSAVE can't be used simultaneously".into());
    }
    Ok(if set.is_empty() { none.as_bytes().to_vec() } else { set.join(" ").into_bytes() })
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
    if words == [b""] {
        return Ok(present.to_vec());
    }
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
