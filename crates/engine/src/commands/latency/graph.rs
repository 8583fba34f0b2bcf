//! `LATENCY GRAPH`: a sparkline of text.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::command::CmdResult;
use crate::dispatch::ctx::Ctx;
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::state::latency::{EventSeries, Sample};

const COLUMNS: usize = 80;
const ROWS: usize = 4;
/// From low to high within a row.
const LEVELS: &[u8; 3] = b"_o#";

pub fn graph(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let events = ctx.server.latency.events.lock();
    let Some((name, series)) = events.iter().find(|(name, _)| name.as_bytes() == args.at(2)) else {
        let name = errors::printed(args.at(2));
        return Err([b"ERR No samples available for event '", name, b"'"].concat().into());
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    ctx.reply.verbatim(draw(name, series, now).as_bytes());
    Ok(())
}

fn draw(name: &str, series: &EventSeries, now: u64) -> String {
    let shown = &series.samples[series.samples.len().saturating_sub(COLUMNS)..];
    let high = shown.iter().map(|s| s.latency_ms).max().unwrap_or(0);
    let low = shown.iter().map(|s| s.latency_ms).min().unwrap_or(0);
    let head = format!("{name} - high {high} ms, low {low} ms (all time high {} ms)\n", series.max_ms);
    let mut text = head + &"-".repeat(COLUMNS) + "\n";
    let steps = LEVELS.len() * ROWS;
    let step = |s: &Sample| {
        let share = (s.latency_ms - low) as usize * steps / (high - low).max(1) as usize;
        share.min(steps - 1)
    };
    for row in 0..ROWS {
        let floor = (ROWS - row - 1) * LEVELS.len();
        let mark = |s: &Sample| match step(s).checked_sub(floor) {
            None => ' ',
            Some(level) => LEVELS.get(level).map_or('|', |b| *b as char),
        };
        text.extend(shown.iter().map(mark));
        text.push('\n');
    }
    // The age of each sample, downwards.
    let labels: Vec<String> = shown.iter().map(|s| age_text(now.saturating_sub(s.unix_seconds))).collect();
    let depth = labels.iter().map(String::len).max().unwrap_or(0);
    text.push('\n');
    for line in 0..depth {
        text.extend(labels.iter().map(|label| label.as_bytes().get(line).map_or(' ', |b| *b as char)));
        text.push('\n');
    }
    text
}

fn age_text(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_samples_stand_higher() {
        let sample = |unix_seconds, latency_ms| Sample { unix_seconds, latency_ms };
        let series = EventSeries { samples: vec![sample(1, 10), sample(50, 130)], max_ms: 200 };
        let text = draw("command", &series, 70);
        assert!(text.starts_with("command - high 130 ms, low 10 ms (all time high 200 ms)\n----"));
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(rows, [" #", " |", " |", "_|", "", "12", "m0", " s"]);
    }
}
