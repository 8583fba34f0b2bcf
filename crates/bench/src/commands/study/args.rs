//! What is to be measured, and how long.

use std::path::PathBuf;

use super::figure::Figure;
use crate::commands::DataArgs;
use crate::output::OutArgs;
use crate::peer::PeerArgs;
use crate::pin::CpuArgs;
use crate::study::{Subject, Writes};

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Figures: 9, 10 or 10a to 10l, 11, 12, 13 to 17, table4, and ours: cuts, values, bars [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub figures: Option<Vec<String>>,
    /// All figures
    #[arg(long, conflicts_with = "figures")]
    pub all: bool,
    /// Algorithms [default: those of the paper and epoch; the others take part at the default point]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub algorithms: Option<Vec<Subject>>,
    /// What updates write, in figures 10 and 12 and for the bars: a word of the row, or all of it
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "part,row")]
    pub writes: Vec<Writes>,
    /// Sizes of the data
    #[arg(long, value_name = "GB", value_delimiter = ',', default_value = "0.25,0.5,1,2,4")]
    pub sizes: Vec<f64>,
    /// Size of the data where something else is varied
    #[arg(long, value_name = "GB", default_value_t = 0.5)]
    pub base: f64,
    /// Size of the data for the bars
    #[arg(long, value_name = "GB", default_value_t = 1.0)]
    pub bars: f64,
    /// Sizes of a row
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "64,128,256,512,1024,4096")]
    pub rows: Vec<usize>,
    /// Updates a tick
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "16384,32768,65536,131072,262144"
    )]
    pub frequencies: Vec<u32>,
    /// Exponents of the Zipf distribution
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0.1,0.3,0.5,0.7,0.9")]
    pub exponents: Vec<f64>,
    /// Successive checkpoints in each measurement
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    pub checkpoints: u32,
    /// No checkpoint of a measurement but the first begins later
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    pub seconds: f64,
    /// Rounds, of which figures and bars take the medians
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    pub rounds: u32,
    /// Memory for spare frames and for what writers have captured
    #[arg(long, value_name = "MB", default_value_t = 64)]
    pub budget: u64,
    /// Records of the server, in thousands
    #[arg(long, value_name = "THOUSANDS", value_delimiter = ',', default_value = "250,500,1000")]
    pub records: Vec<u64>,
    /// Shares of updates among the server's requests
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "10,20,30,40,50")]
    pub updates: Vec<u8>,
    /// Requests a second while the server saves
    #[arg(long, value_name = "PER SECOND", default_value_t = 10_000.0)]
    pub rate: f64,
    /// Threads of Figure 12
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8,16")]
    pub threads: Vec<usize>,
    /// Measurements of an earlier run that need not be done again: its directory. Give it the same sizes
    #[arg(long, value_name = "DIR")]
    pub resume: Option<PathBuf>,
    /// Directory of runs of `fork`, whose results are quoted for On-Demand-Fork and Async-fork
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub fork_results: PathBuf,
    /// Write a page that shows everything, too (done with all figures)
    #[arg(long)]
    pub report: bool,
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// A run of everything within a minute, in which nothing is as large as it should be
    #[arg(long, visible_alias = "small")]
    pub quick: bool,
    #[command(flatten)]
    pub peers: PeerArgs,
    #[command(flatten)]
    pub cpus: CpuArgs,
    #[command(flatten)]
    pub data: DataArgs,
    #[command(flatten)]
    pub out: OutArgs,
}

const MB: f64 = 1.0 / 1024.0;

impl Args {
    /// With what `--quick` means.
    pub fn complete(&self) -> Args {
        let mut args = self.clone();
        if self.quick {
            args.sizes = vec![2.0 * MB, 4.0 * MB];
            (args.base, args.bars) = (2.0 * MB, 2.0 * MB);
            args.rows = vec![64, 4096];
            args.frequencies = vec![256, 1024];
            args.exponents = vec![0.9];
            (args.checkpoints, args.seconds, args.rounds) = (2, 1.0, 1);
            args.budget = 1;
            (args.records, args.updates) = (vec![2], vec![10]);
            args.rate = 1000.0;
            args.threads = vec![1, 2];
        }
        args
    }

    /// # Errors
    /// A word that means no figure.
    pub fn figures(&self) -> Result<Vec<Figure>, String> {
        let is_wanted = |figure: &Figure| figure.writes().is_none_or(|writes| self.writes.contains(&writes));
        let Some(words) = &self.figures else {
            return Ok(Figure::all().into_iter().filter(is_wanted).collect());
        };
        let mut found: Vec<Figure> = Vec::new();
        for word in words {
            let named = Figure::named(word.trim());
            if named.is_empty() {
                let names: Vec<_> = Figure::all().into_iter().map(Figure::name).collect();
                return Err(format!("--figures {word}: there are 10, 11, {}", names.join(", ")));
            }
            found.extend(
                named
                    .into_iter()
                    .filter(is_wanted)
                    .filter(|figure| !found.contains(figure))
                    .collect::<Vec<_>>(),
            );
        }
        Ok(found)
    }

    /// For figures over an axis.
    pub fn subjects(&self) -> Vec<Subject> {
        self.algorithms.clone().unwrap_or_else(Subject::of_paper)
    }

    /// For the default point and for values.
    pub fn all_subjects(&self) -> Vec<Subject> {
        self.algorithms.clone().unwrap_or_else(Subject::all)
    }
}
