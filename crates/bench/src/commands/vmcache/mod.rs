//! `vmcache`: this store against others that can be linked, without a network: random lookups and TPC-C, with data that fits
//! into memory and data that does not. Beside them, what the machine gives, and updates by a server.

mod args;
mod discards;
mod eviction;
pub mod guest;
mod host;
mod limit;
pub mod lookups;
pub mod pages;
pub mod plan;
mod raw;
mod reads;
mod report;
mod updates;

use std::path::Path;

pub use self::args::Args;
use self::args::Part;
use self::host::Limit;
use self::plan::{Eviction, Lookups, Phase, Place, Plan, Tpcc, Work};
use self::raw::{RawFile, Reader};
use self::reads::{PagedPool, Reads, Target};
use self::report::{EvictionRun, LookupRun, PageRun, RawRun, Report, TpccRun};
use self::updates::Updates;
use crate::error::Result;
use crate::kv::System;
use crate::output::{human_bytes, Output};
use crate::peer::Peer;
use crate::pin::{self, CpuPlan};
use crate::tpcc::Scale;
use stillframe_store::PoolBackend;

/// Pages that stay in the cache of any processor.
const CACHED_BYTES: u64 = 32 << 10;

struct Run {
    args: Args,
    limit: Limit,
    report: Report,
}

pub fn run(args: &Args) -> Result<()> {
    let args = args.complete();
    let mut out = Output::new(&args.out, "vmcache", "Stores that can be linked", &[])?;
    let (limit, how) = match args.no_cgroup {
        true => (Limit::Settings, "by the systems' own settings, as was asked for".to_owned()),
        false => Limit::best(),
    };
    out.note("memory limit", how);
    let scratch = args.data.scratch();
    let measured_s: f64 = args.parts.iter().map(|part| args.measured_s(*part)).sum();
    eprintln!(
        "{} parts measure {:.0} minutes, and load before",
        args.parts.len(),
        (measured_s / 60.0).ceil()
    );
    let mut run = Run { args, limit, report: Report::default() };
    let parts = run.args.parts.clone();
    for (index, part) in parts.iter().enumerate() {
        let measured_s = run.args.measured_s(*part);
        eprintln!("part {} of {}: {}, measures {measured_s:.0} s", index + 1, parts.len(), part.name());
        run.part(*part, &scratch.path().join(data_of(*part)))?;
        // The data is of no more use, and the disk may be small.
        if parts.get(index + 1).is_none_or(|next| data_of(*next) != data_of(*part)) {
            let _ = std::fs::remove_dir_all(scratch.path());
        }
    }
    run.report.write(&mut out)
}

/// The data of a part, which the next may go on with.
fn data_of(part: Part) -> String {
    match part {
        Part::LookupsDisk | Part::Eviction => Part::LookupsDisk.name(),
        part => part.name(),
    }
}

impl Run {
    fn part(&mut self, part: Part, dir: &Path) -> Result<()> {
        match part {
            Part::Lookups => self.lookups(dir, Place::InMemory),
            Part::LookupsDisk => self.lookups(dir, Place::OutOfMemory),
            Part::Eviction => self.eviction(dir),
            Part::UpdatesDisk => self.updates(dir),
            Part::Pages => self.pages(),
            Part::Discards => self.discards(),
            Part::Reads => self.reads(dir),
            Part::Tpcc => self.tpcc(dir, Place::InMemory),
            Part::TpccDisk => self.tpcc(dir, Place::OutOfMemory),
            Part::TpccGrowing => self.tpcc(dir, Place::Growing),
        }
    }

    fn lookups(&mut self, dir: &Path, place: Place) -> Result<()> {
        let (key_count, memory_bytes) = self.args.lookups_of(place);
        eprintln!(
            "lookups: {key_count} rows of {} B, memory of {}",
            lookups::ROW_BYTES,
            human_bytes(memory_bytes as f64)
        );
        let raw = (place == Place::OutOfMemory)
            .then(|| RawFile::create(dir, key_count * lookups::ROW_BYTES))
            .transpose()?;
        if let Some(raw) = &raw {
            self.report.notes.push(("raw reader".to_owned(), raw.description()));
        }
        for round in 0..self.args.rounds {
            for system in self.args.systems.clone() {
                self.look_up(system, dir, place, round);
            }
            for (reader, raw) in Reader::ALL.into_iter().filter_map(|reader| Some((reader, raw.as_ref()?))) {
                let per_second = raw.rate(reader, self.args.seconds)?;
                self.report.lookups.raw.push(RawRun { reader, round, per_second });
            }
        }
        Ok(())
    }

    /// One system, and in memory this project's store once more with a store for each thread.
    fn look_up(&mut self, system: System, dir: &Path, place: Place, round: usize) {
        let (key_count, memory_bytes) = self.args.lookups_of(place);
        let together = self.args.phases();
        let several = together.iter().filter(|phase| phase.thread_count > 1);
        let apart: Vec<Phase> = several.map(|phase| Phase { is_apart: true, ..*phase }).collect();
        let is_split = place == Place::InMemory && system.is_own();
        for phases in [together, if is_split { apart } else { Vec::new() }] {
            let Some(first) = phases.first() else { continue };
            let name =
                if first.is_apart { format!("{}-apart", system.name()) } else { system.name().to_owned() };
            let work = Work::Lookups(Lookups {
                key_count,
                is_warmed: place == Place::InMemory,
                phases,
                warm_up_s: self.args.warm_up,
                measured_s: self.args.seconds,
                seed: self.args.seed.wrapping_add(round as u64),
            });
            let plan = Plan { system, dir: dir.join(name), memory_bytes, work };
            match host::measure(&plan, self.limit) {
                Ok(outcome) => {
                    self.report.lookups.runs.push(LookupRun { system, place, round, key_count, outcome })
                }
                Err(error) => self.report.fail(system, "lookups", place, &error),
            }
        }
    }

    fn eviction(&mut self, dir: &Path) -> Result<()> {
        let (key_count, memory_bytes) = self.args.lookups_of(Place::OutOfMemory);
        let hot_count = self.args.hot_keys;
        let raw = RawFile::create(dir, key_count * lookups::ROW_BYTES)?;
        for round in 0..self.args.rounds {
            for system in self.args.systems.clone() {
                let work = Work::Eviction(Eviction {
                    key_count,
                    hot_count,
                    raw: raw.clone(),
                    warm_up_s: self.args.warm_up,
                    measured_s: self.args.seconds,
                    seed: self.args.seed.wrapping_add(round as u64),
                });
                let plan = Plan { system, dir: dir.join(system.name()), memory_bytes, work };
                match host::measure(&plan, self.limit) {
                    Ok(outcome) => self.report.eviction.runs.push(EvictionRun {
                        system,
                        round,
                        key_count,
                        hot_count,
                        outcome,
                    }),
                    Err(error) => self.report.fail(system, "eviction", Place::OutOfMemory, &error),
                }
            }
        }
        Ok(())
    }

    /// One that cannot be measured, for want of a server or of memory, is no reason to lose the others.
    fn updates(&mut self, dir: &Path) -> Result<()> {
        let measured = Peer::stillframe(self.args.stillframe.as_deref()).and_then(|peer| {
            let cpus = self.args.cpus.plan();
            cpus.as_ref().map_or(Ok(()), pin::check_plan)?;
            let placement = cpus.as_ref().map_or("nothing is pinned".to_owned(), CpuPlan::line);
            self.report.notes.push(("updates, placement".to_owned(), placement));
            let updates = Updates {
                peer,
                cpus,
                key_count: self.args.update_keys,
                conn_count: self.args.clients,
                warm_up_s: self.args.warm_up,
                measured_s: self.args.seconds,
                rounds: self.args.rounds,
                seed: self.args.seed,
            };
            updates::measure(&updates, dir)
        });
        match measured {
            Ok(measured) => {
                self.report.notes.extend(measured.notes);
                self.report.updates.rounds = measured.rounds;
            }
            Err(error) => self.report.fail(System::Stillframe, "updates", Place::OutOfMemory, &error),
        }
        Ok(())
    }

    fn pages(&mut self) -> Result<()> {
        for round in 0..self.args.rounds {
            for bytes in [CACHED_BYTES, self.args.pages_mb << 20] {
                // Each way gets its share of the time.
                let measured = pages::measure(
                    bytes,
                    self.args.seconds / pages::Way::WITHOUT_MODULE.len() as f64,
                    &PoolBackend::WITHOUT_MODULE,
                )?;
                self.report.pages.runs.push(PageRun { bytes, round, measured });
            }
        }
        Ok(())
    }

    fn discards(&mut self) -> Result<()> {
        for _ in 0..self.args.rounds {
            let measured = discards::measure(&self.args.threads, self.args.seconds)?;
            self.report.discards.rounds.push(measured);
        }
        Ok(())
    }

    /// The pool's file is four times as large as its memory.
    fn reads(&mut self, dir: &Path) -> Result<()> {
        let (_, memory_bytes) = self.args.lookups_of(Place::OutOfMemory);
        let memory_bytes = if self.args.small { 0 } else { memory_bytes };
        let mut pools = Vec::new();
        for backend in Target::ALL.into_iter().filter_map(Target::backend) {
            pools.push((backend, PagedPool::create(dir, backend, memory_bytes)?));
        }
        let bytes = pools.first().map_or(0, |(_, pool)| pool.bytes());
        let buffers = RawFile::create(dir, bytes)?;
        for _ in 0..self.args.rounds {
            let mut measured = Vec::new();
            let batches = [1, reads::BATCH_PAGES];
            let case_s = self.args.seconds / (batches.len() * Target::ALL.len()) as f64;
            for (target, batch) in
                Target::ALL.into_iter().flat_map(|target| batches.map(|batch| (target, batch)))
            {
                for &thread_count in &self.args.threads {
                    let pool = pools.iter().find(|(backend, _)| Some(*backend) == target.backend());
                    let per_second = match pool {
                        Some((_, pool)) => pool.rate_of(thread_count, batch, case_s)?,
                        None => buffers.rate_of(thread_count, batch, case_s)?,
                    };
                    eprintln!(
                        "reads into {}, {thread_count} threads, {batch} at once: {per_second:.0}/s",
                        target.name()
                    );
                    measured.push(Reads { target, thread_count, batch, per_second });
                }
            }
            self.report.reads.rounds.push(measured);
        }
        Ok(())
    }

    fn tpcc(&mut self, dir: &Path, place: Place) -> Result<()> {
        let (warehouses, memory_bytes) = self.args.warehouses_of(place);
        let (thread_counts, warm_up_s, measured_s) = match place {
            Place::Growing => (vec![1], 0.0, self.args.growing_s()),
            _ => (self.args.threads.clone(), self.args.warm_up, self.args.seconds),
        };
        for round in 0..self.args.rounds {
            for (&warehouses, &system) in
                warehouses.iter().flat_map(|w| self.args.systems.iter().map(move |s| (w, s)))
            {
                let scale = match self.args.small {
                    true => Scale::small(warehouses.max(1)),
                    false => Scale::standard(warehouses.max(1)),
                };
                let work = Work::Tpcc(Tpcc {
                    scale,
                    thread_counts: thread_counts.clone(),
                    warm_up_s,
                    measured_s,
                    seed: self.args.seed.wrapping_add(round as u64),
                });
                let plan = Plan { system, dir: dir.join(system.name()), memory_bytes, work };
                match host::measure(&plan, self.limit) {
                    Ok(outcome) => {
                        self.report.tpcc.runs.push(TpccRun { system, place, round, scale, outcome })
                    }
                    Err(error) => self.report.fail(system, "TPC-C", place, &error),
                }
                // A run changes its data.
                let _ = std::fs::remove_dir_all(&plan.dir);
            }
        }
        Ok(())
    }
}
