//! Seeded values and bytes for `cjson`, `cmsgpack`, `struct` and `bit`, here and on redis-server.

use fastrand::Rng;
use stillframe_scripting::Resp;
use stillframe_testkit::seed_or;

use crate::server::Pair;

const ROUNDS: usize = 3_000;
/// The depth of what has no parts.
const LEAVES_ONLY: u32 = 100;
/// Differences that are shown.
const SHOWN_MAX: usize = 10;

/// A value as text that does not depend on the order of `pairs`.
const SHOW: &str = "
    local function show(v)
        local t = type(v)
        if t == 'number' then return v ~= v and 'nan' or string.format('%.17g', v) end
        if t == 'string' then return string.format('%q', v) end
        if t ~= 'table' then return v == cjson.null and 'null' or tostring(v) end
        local items = {}
        for k, x in pairs(v) do items[#items + 1] = show(k) .. '=' .. show(x) end
        table.sort(items)
        return '{' .. table.concat(items, ',') .. '}'
    end
    local function all(...)
        local items = {}
        for i = 1, select('#', ...) do items[i] = show((select(i, ...))) end
        return table.concat(items, ' ')
    end
";

struct Fuzz {
    pair: Pair,
    rng: Rng,
    different: Vec<String>,
}

impl Fuzz {
    fn new(seed: u64) -> Fuzz {
        Fuzz { pair: Pair::start(), rng: Rng::with_seed(seed_or(seed)), different: Vec::new() }
    }

    fn check(&mut self, body: &str, args: &[&[u8]]) {
        let source = format!("{SHOW} {body}");
        if self.different.len() < SHOWN_MAX {
            self.different.extend(
                self.pair.compare(source.as_bytes(), &[], args, Resp::Two).map(|text| text.replace(SHOW, "")),
            );
        }
    }

    fn end(self) {
        assert!(self.different.is_empty(), "{}", self.different.join("\n"));
    }

    fn number(&mut self) -> String {
        let rng = &mut self.rng;
        match rng.u8(..10) {
            0 => rng.i64(..).to_string(),
            1 => rng.i32(..).to_string(),
            2 | 3 => rng.i16(-300..300).to_string(),
            4 => format!("{:e}", f64::from_bits(rng.u64(..) & !(0x7FF << 52) | rng.u64(900..1150) << 52)),
            5 => format!("{}", rng.f64() * 1e6),
            6 => format!("{}e{}", rng.i8(..), rng.i16(-330..330)),
            7 => (1i128 << rng.u32(..70)).to_string(),
            8 => (-(1i128 << rng.u32(..66)) + i128::from(rng.i8(-2..3))).to_string(),
            _ => format!("{}.{}", rng.i8(..), rng.u16(..)),
        }
    }

    fn string(&mut self, len_max: usize) -> Vec<u8> {
        let len = self.rng.usize(..=len_max);
        (0..len).map(|_| self.rng.u8(..)).collect()
    }

    fn json_string(&mut self, into: &mut Vec<u8>) {
        into.push(b'"');
        for _ in 0..self.rng.usize(..12) {
            match self.rng.u8(..8) {
                0 => into.extend_from_slice(format!("\\u{:04x}", self.rng.u16(..)).as_bytes()),
                1 => into.extend_from_slice(&[b'\\', b"\"\\/bfnrt"[self.rng.usize(..8)]]),
                2 => into.push(self.rng.u8(128..)),
                _ => into.push(self.rng.u8(b'a'..=b'z')),
            }
        }
        into.push(b'"');
    }

    fn json(&mut self, depth: u32, into: &mut Vec<u8>) {
        match self.rng.u32(..if depth > 4 { 5 } else { 9 }) {
            0 => into.extend_from_slice([&b"true"[..], b"false", b"null"][self.rng.usize(..3)]),
            1 | 2 => self.json_string(into),
            3 | 4 => into.extend_from_slice(self.number().as_bytes()),
            5 | 6 => {
                into.push(b'[');
                for index in 0..self.rng.usize(..6) {
                    if index > 0 {
                        into.push(b',');
                    }
                    self.json(depth + 1, into);
                }
                into.push(b']');
            }
            _ => {
                into.push(b'{');
                for index in 0..self.rng.usize(..6) {
                    if index > 0 {
                        into.push(b',');
                    }
                    self.json_string(into);
                    into.push(b':');
                    self.json(depth + 1, into);
                }
                into.push(b'}');
            }
        }
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..self.rng.usize(..4) {
            if bytes.is_empty() {
                return;
            }
            let at = self.rng.usize(..bytes.len());
            match self.rng.u8(..4) {
                0 => bytes[at] = self.rng.u8(..),
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, b"[]{},:\"\\u0123eE+-.naif \0"[self.rng.usize(..24)]),
                _ => bytes.truncate(at),
            }
        }
    }

    fn msgpack(&mut self, depth: u32, into: &mut Vec<u8>) {
        let count = self.rng.u8(..4);
        match self.rng.u32(u32::from(depth == LEAVES_ONLY)..if depth > 4 { 8 } else { 14 }) {
            0 => into.push(self.rng.u8(..)),
            1 => into.extend([0xC0 + self.rng.u8(..4)]),
            2 | 3 => {
                let code = self.rng.u8(0xCA..0xD4);
                let len = [4, 8, 1, 2, 4, 8, 1, 2, 4, 8][usize::from(code - 0xCA)];
                into.push(code);
                (0..len).for_each(|_| into.push([0, 0xFF, 0x7F, self.rng.u8(..)][self.rng.usize(..4)]));
            }
            4 => {
                into.extend([0xD9, count]);
                (0..count).for_each(|_| into.push(self.rng.u8(..)));
            }
            5 => {
                into.extend([0xDA, 0, count]);
                (0..count).for_each(|_| into.push(self.rng.u8(..)));
            }
            6 | 7 => {
                into.push(0xA0 | count);
                (0..count).for_each(|_| into.push(self.rng.u8(..)));
            }
            8 | 9 => {
                into.push(0x90 | count);
                (0..count).for_each(|_| self.msgpack(depth + 1, into));
            }
            10 => {
                into.extend([0xDC, 0, count]);
                (0..count).for_each(|_| self.msgpack(depth + 1, into));
            }
            code => {
                match code {
                    11 => into.extend([0xDF, 0, 0, 0, count]),
                    _ => into.push(0x80 | count),
                }
                for _ in 0..count {
                    // Not tables: their order in a table is that of their addresses.
                    self.msgpack(LEAVES_ONLY, into);
                    self.msgpack(depth + 1, into);
                }
            }
        }
    }

    fn format(&mut self) -> Vec<u8> {
        let mut format = Vec::new();
        for _ in 0..self.rng.usize(1..7) {
            match self.rng.u8(..12) {
                0 => format.extend_from_slice(format!("i{}", self.rng.u8(..20)).as_bytes()),
                1 => {
                    format.extend_from_slice(format!("I{}", [1, 2, 4, 8, 16][self.rng.usize(..5)]).as_bytes())
                }
                2 => format.extend_from_slice(format!("c{}", self.rng.u8(..5)).as_bytes()),
                3 => {
                    format.extend_from_slice(format!("!{}", [1, 2, 4, 8, 3][self.rng.usize(..5)]).as_bytes())
                }
                _ => format.push(b"bBhHlLTfdsxiI<> !c0z"[self.rng.usize(..20)]),
            }
        }
        format
    }
}

#[test]
fn json_both_ways() {
    let mut fuzz = Fuzz::new(1);
    for round in 0..ROUNDS {
        let mut text = Vec::new();
        fuzz.json(0, &mut text);
        if round % 2 == 1 {
            fuzz.mutate(&mut text);
        }
        fuzz.check(
            "local ok, v = pcall(cjson.decode, ARGV[1]) if not ok then return v end
             local ok, text = pcall(cjson.encode, v) return {show(v), text}",
            &[&text],
        );
    }
    fuzz.end();
}

#[test]
fn msgpack_both_ways() {
    let mut fuzz = Fuzz::new(2);
    for round in 0..ROUNDS {
        let mut bytes = Vec::new();
        for _ in 0..fuzz.rng.usize(..3) {
            fuzz.msgpack(0, &mut bytes);
        }
        let is_mutated = round % 2 == 1;
        if is_mutated {
            fuzz.mutate(&mut bytes);
        }
        // Where a mutation has made a table a key, what is packed depends on addresses.
        let packed = if is_mutated { "1" } else { "cmsgpack.pack(1, ...)" };
        fuzz.check(
            &format!("local function take(ok, ...) if not ok then return (...) end return {{all(...), select('#', ...), {packed}}} end
             return take(pcall(cmsgpack.unpack, ARGV[1]))"),
            &[&bytes],
        );
        let (limit, offset) = (fuzz.rng.i8(-1..4).to_string(), fuzz.rng.i8(-1..9).to_string());
        fuzz.check(
            "local function take(ok, ...) if not ok then return (...) end return all(...) end
             return {take(pcall(cmsgpack.unpack_limit, ARGV[1], ARGV[2], ARGV[3])), take(pcall(cmsgpack.unpack_one, ARGV[1], ARGV[3]))}",
            &[&bytes, limit.as_bytes(), offset.as_bytes()],
        );
    }
    fuzz.end();
}

#[test]
fn struct_both_ways() {
    let mut fuzz = Fuzz::new(3);
    for _ in 0..ROUNDS {
        let format = fuzz.format();
        let data = fuzz.string(30);
        let position = fuzz.rng.i8(-1..8).to_string();
        fuzz.check(
            "local function take(ok, ...) if not ok then return (...) end return all(...) end
             return {take(pcall(struct.unpack, ARGV[1], ARGV[2], tonumber(ARGV[3]))), take(pcall(struct.size, ARGV[1]))}",
            &[&format, &data, position.as_bytes()],
        );
        let values: Vec<Vec<u8>> = (0..fuzz.rng.usize(..6))
            .map(|_| if fuzz.rng.u8(..4) > 0 { fuzz.number().into_bytes() } else { fuzz.string(5) })
            .collect();
        let mut args: Vec<&[u8]> = vec![&format];
        args.extend(values.iter().map(Vec::as_slice));
        fuzz.check("local ok, v = pcall(struct.pack, unpack(ARGV)) return v", &args);
    }
    fuzz.end();
}

#[test]
fn bits() {
    const OPERATIONS: [&str; 12] = [
        "tobit", "bnot", "band", "bor", "bxor", "lshift", "rshift", "arshift", "rol", "ror", "bswap", "tohex",
    ];
    let mut fuzz = Fuzz::new(4);
    for _ in 0..ROUNDS {
        let operation = OPERATIONS[fuzz.rng.usize(..12)];
        let numbers: Vec<String> = (0..fuzz.rng.usize(1..4)).map(|_| fuzz.number()).collect();
        let args: Vec<&[u8]> = numbers.iter().map(String::as_bytes).collect();
        let body = format!(
            "for i, v in ipairs(ARGV) do ARGV[i] = tonumber(v) or v end local ok, v = pcall(bit.{operation}, unpack(ARGV)) return v"
        );
        fuzz.check(&body, &args);
    }
    fuzz.end();
}

/// Patterns of the own matcher.
#[test]
fn patterns() {
    const PIECES: [&str; 34] = [
        "a", "b", ".", "%a", "%d", "%s", "[ab]", "[^a]", "[a-c]", "a*", "a+", "a-", "a?", ".*", ".-", ".+",
        "(", ")", "()", "^", "$", "%b()", "%f[a]", "%1", "%", "[", "]", "-", "%.", "[%a_]", "(a)", "(.-)",
        "(b*)", "%w+",
    ];
    let mut fuzz = Fuzz::new(5);
    for _ in 0..ROUNDS {
        let pattern: String = (0..fuzz.rng.usize(1..6)).map(|_| PIECES[fuzz.rng.usize(..34)]).collect();
        let text: String =
            (0..fuzz.rng.usize(..12)).map(|_| char::from(b"aabbc()1 _."[fuzz.rng.usize(..11)])).collect();
        let template: String = (0..fuzz.rng.usize(..4))
            .map(|_| ["x", "%0", "%1", "%2", "%%", "%"][fuzz.rng.usize(..6)])
            .collect();
        let start = fuzz.rng.i8(-4..8).to_string();
        fuzz.check(
            "local t, p, r, s = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
             local function take(ok, ...) return all(ok, ...) end
             local g = {}
             local ok, e = pcall(function() for a, b in t:gmatch(p) do g[#g + 1] = all(a, b) end end)
             return {take(pcall(string.find, t, p, s)), take(pcall(string.match, t, p, s)), take(pcall(string.gsub, t, p, r)),
                 take(pcall(string.gsub, t, p, function(a) return a end, 2)), table.concat(g, ';'), e}",
            &[text.as_bytes(), pattern.as_bytes(), template.as_bytes(), start.as_bytes()],
        );
    }
    fuzz.end();
}
