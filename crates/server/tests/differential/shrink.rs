//! Makes a failing sequence small: fewer steps, then fewer and shorter arguments.

use crate::gen;
use crate::sequence::{Action, Arg, Sequence, Step};

/// Runs of the pair that shrinking may take.
const RUN_LIMIT: usize = 600;

/// The smallest sequence found for which `fails` still holds.
pub fn shrink(sequence: &Sequence, mut fails: impl FnMut(&Sequence) -> bool) -> Sequence {
    let mut left = RUN_LIMIT;
    let mut fails = move |candidate: &Sequence| {
        left = left.saturating_sub(1);
        left > 0 && !candidate.steps.iter().any(is_racy) && fails(candidate)
    };
    let mut best = sequence.clone();
    for plain in [Sequence { pipelined: false, ..best.clone() }, Sequence { resp3: false, ..best.clone() }] {
        let candidate = Sequence {
            pipelined: plain.pipelined && best.pipelined,
            resp3: plain.resp3 && best.resp3,
            ..best.clone()
        };
        if fails(&candidate) {
            best = candidate;
        }
    }
    drop_steps(&mut best, &mut fails);
    shorten_arguments(&mut best, &mut fails);
    drop_steps(&mut best, &mut fails);
    best
}

/// Shorter arguments may make a deadline near.
fn is_racy(step: &Step) -> bool {
    let Action::Command(args) = &step.action else { return false };
    let bytes = |arg: &Arg| match arg {
        Arg::Bytes(bytes) => bytes.clone(),
        Arg::LastDump => Vec::new(),
    };
    gen::is_racy(&args.iter().map(bytes).collect::<Vec<_>>())
}

fn drop_steps(best: &mut Sequence, fails: &mut impl FnMut(&Sequence) -> bool) {
    let mut chunk = best.steps.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        while at < best.steps.len() {
            let mut candidate = best.clone();
            candidate.steps.drain(at..(at + chunk).min(best.steps.len()));
            if !candidate.steps.is_empty() && fails(&candidate) {
                *best = candidate;
            } else {
                at += chunk;
            }
        }
        if chunk == 1 {
            return;
        }
        chunk = chunk.div_ceil(2);
    }
}

fn shorten_arguments(best: &mut Sequence, fails: &mut impl FnMut(&Sequence) -> bool) {
    for step in 0..best.steps.len() {
        let mut arg = 1;
        while let Action::Command(args) = &best.steps[step].action {
            if arg >= args.len() {
                break;
            }
            let mut try_args = |best: &mut Sequence, args: Vec<Arg>| {
                let mut candidate = best.clone();
                candidate.steps[step].action = Action::Command(args);
                let failed = fails(&candidate);
                if failed {
                    *best = candidate;
                }
                failed
            };
            let mut without = args.clone();
            without.remove(arg);
            if try_args(best, without) {
                continue;
            }
            while let Action::Command(args) = &best.steps[step].action {
                let mut shorter = args.clone();
                let Arg::Bytes(bytes) = &mut shorter[arg] else { break };
                if bytes.len() < 2 {
                    break;
                }
                bytes.truncate(bytes.len() / 2);
                if !try_args(best, shorter) {
                    break;
                }
            }
            arg += 1;
        }
    }
}
