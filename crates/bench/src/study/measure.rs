//! From a plan to its outcome, in this process.

use std::sync::Arc;

use stillframe_algorithms::kind::{KindOptions, WithAlgorithm};
use stillframe_algorithms::physical::{EpochOptions, SweepOrder};
use stillframe_algorithms::{Algorithm, Help, ImageError, PhysicalKind, Place, RowCopies, RowId};

use super::case::{Outcome, Plan, Work, Writes};
use super::driver;
use super::engine::Engine;
use super::engines::forked::Forked;
use super::engines::physical::{Dump, Physical};
use super::engines::protected::Protected;
use super::engines::serialised::{Serialised, BUCKET_ROWS};
use super::image_file::{Merged, Runs};
use super::memory::{rows, words, Counted};
use super::subject::Subject;
use crate::error::Result;
use crate::procfs;

/// # Errors
/// There is no memory, the system refuses what a subject needs, an image could not be written or is not right.
pub fn measure(plan: &Plan) -> Result<Outcome> {
    let case = &plan.case;
    let (row_count, row_len) = (case.row_count(), case.row_len);
    let main = || words(row_count as usize * row_len / 8, case.huge_pages);
    // Under cachegrind the page size cannot be asked for.
    let (before_bytes, _) = procfs::rss_and_peak_bytes(std::process::id());
    let mut outcome = match case.subject {
        Subject::Physical(kind) => physical(kind, plan)?,
        Subject::Fork => run(&Forked::new(main()?, row_len, &plan.dir, &plan.saver_cpus)?, plan)?,
        Subject::EntryCow => run(&serialised(plan, 1)?, plan)?,
        Subject::BucketCow => run(&serialised(plan, BUCKET_ROWS)?, plan)?,
        Subject::WriteProtect => {
            let words = main()?;
            run(&Protected::new(&words, row_count, row_len, plan.budget_bytes, &plan.dir)?, plan)?
        }
    };
    let (_, peak_bytes) = procfs::rss_and_peak_bytes(std::process::id());
    outcome.memory_bytes += peak_bytes.saturating_sub(before_bytes);
    Ok(outcome)
}

fn serialised(plan: &Plan, unit_rows: u32) -> Result<Serialised> {
    let case = &plan.case;
    let rows = rows(case.row_count(), case.row_len, case.huge_pages)?;
    Serialised::new(rows, case.row_count(), unit_rows, plan.budget_bytes, &plan.dir)
}

fn run<E: Engine>(engine: &E, plan: &Plan) -> Result<Outcome> {
    let mut outcome = match &plan.work {
        Work::Ticks(ticks) => driver::drive(engine, plan, ticks)?,
        Work::Counted { ticks } => driver::count(engine, plan, *ticks)?,
    };
    outcome.image_bytes = engine.image_bytes();
    outcome.helped_rows = engine.helped_rows();
    outcome.memory_bytes = engine.memory_elsewhere_bytes();
    Ok(outcome)
}

/// For those that never need any.
struct NoHelp;

impl Help<Counted> for NoHelp {
    fn emit(&self, _: &Counted, row: RowId, _: Place) -> std::result::Result<(), ImageError> {
        Err(ImageError::new(format!("row {} has nowhere to go", row.0)))
    }
}

fn physical(kind: PhysicalKind, plan: &Plan) -> Result<Outcome> {
    let (row_count, row_len) = (plan.case.row_count(), plan.case.row_len);
    let runs = match kind {
        PhysicalKind::PingPong | PhysicalKind::Hourglass => None,
        _ => Some(Runs::new(&plan.dir, row_len)?),
    };
    let help: Arc<dyn Help<Counted>> = match &runs {
        Some(runs) => Arc::new(runs.helper()),
        None => Arc::new(NoHelp),
    };
    let spare_frames = (plan.budget_bytes / row_len as u64).clamp(1, row_count.into()) as u32;
    let epoch = EpochOptions { spare_frames, sweep_order: SweepOrder::default(), help };
    let writes_whole_rows = plan.case.writes == Writes::Row;
    let options = KindOptions { row_count, row_len, writes_whole_rows, epoch, hooks: Default::default() };
    kind.build(options, Run { plan, runs })
}

struct Run<'p> {
    plan: &'p Plan,
    runs: Option<Runs>,
}

impl WithAlgorithm<Counted> for Run<'_> {
    type Output = Result<Outcome>;

    fn with<A: Algorithm<Counted>>(self, algorithm: A) -> Result<Outcome> {
        let case = &self.plan.case;
        let row_count = case.row_count();
        let spare = Some(algorithm.spare_frames()).filter(|frames| *frames > 0);
        let slots = [row_count].into_iter().chain(A::SECOND_COPIES.iter().map(|_| row_count)).chain(spare);
        let arrays =
            slots.map(|slots| rows(slots, case.row_len, case.huge_pages)).collect::<Result<Vec<_>>>()?;
        let copies = Counted(RowCopies::over(arrays.into_boxed_slice()));
        let dump = match self.runs {
            Some(runs) if !A::IS_INCREMENTAL => Dump::Full(runs),
            _ => Dump::Merged(Merged::new(&self.plan.dir, case.row_len, row_count)?),
        };
        run(&Physical::new(algorithm, copies, dump, row_count), self.plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::case::{Case, Draw, Ticks};

    fn verified(case: Case, budget_bytes: u64) -> Outcome {
        let dir = stillframe_testkit::TempDir::new("study-image");
        let ticks = Ticks {
            checkpoints: 3,
            seconds: 20.0,
            is_verified: true,
            is_traced: true,
            is_each_timed: case.row_len > 4096,
        };
        let plan = Plan {
            work: Work::Ticks(ticks),
            budget_bytes,
            seed: 3,
            dir: dir.to_path_buf(),
            client_cpus: Vec::new(),
            saver_cpus: Vec::new(),
            case,
        };
        measure(&plan).unwrap_or_else(|error| panic!("{}: {error}", plan.case.subject))
    }

    fn small(subject: Subject, row_len: usize) -> Case {
        Case {
            subject,
            data_bytes: 4 << 20,
            row_len,
            updates_per_tick: 2000,
            writes: Writes::Part,
            draw: Draw::Uniform,
            huge_pages: false,
            round: 0,
        }
    }

    /// Whatever the size of its rows and its budget, each image is the rows as they were at the cut.
    #[test]
    fn images_are_the_rows_at_the_cut() {
        for subject in Subject::all() {
            for (row_len, budget_bytes, draw) in
                [(64, 1 << 20, Draw::Uniform), (4096, 64 << 10, Draw::Zipf(0.9)), (1024, 1, Draw::Uniform)]
            {
                let writes = if row_len == 4096 { Writes::Part } else { Writes::Row };
                verified(Case { writes, draw, ..small(subject, row_len) }, budget_bytes);
                let outcome = verified(Case { draw, ..small(subject, row_len) }, budget_bytes);
                assert_eq!(outcome.verified_images, 3, "{subject}");
                assert_eq!((outcome.cut_ns.len(), outcome.checkpoint_ns.len()), (3, 3), "{subject}");
                assert!(outcome.tick_count > 0 && outcome.trace.len() == outcome.tick_count, "{subject}");
                assert!(outcome.image_bytes >= 4 << 20, "{subject}");
                assert!(outcome.max_ns >= outcome.p50_ns && outcome.p50_ns > 0, "{subject}");
            }
        }
    }

    #[test]
    fn counted_runs_need_no_clock() {
        for subject in Subject::of_paper() {
            let dir = stillframe_testkit::TempDir::new("study-counted");
            let plan = Plan {
                work: Work::Counted { ticks: 16 },
                budget_bytes: 1 << 20,
                seed: 3,
                dir: dir.to_path_buf(),
                client_cpus: Vec::new(),
                saver_cpus: Vec::new(),
                case: small(subject, 64),
            };
            assert_eq!(measure(&plan).unwrap().update_count, 16 * 2000, "{subject}");
        }
    }
}
