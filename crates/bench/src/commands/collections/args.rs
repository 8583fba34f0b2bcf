//! What is to be measured, and how large.

use clap::ValueEnum;

use crate::commands::DataArgs;
use crate::output::OutArgs;
use crate::peer::PeerArgs;
use crate::pin::CpuArgs;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Bytes an element of one large collection, and bytes a key of small ones
    Bytes,
    /// Commands a second, and CPU time a command, on random elements
    Throughput,
    /// What a save adds to a write into a large hash
    Save,
    /// Small commands while a large collection is deleted
    Delete,
    /// Places and ranks in the middle of large collections
    Order,
    /// What a checkpoint writes after few fields of a large hash were changed
    Checkpoint,
    /// Clients that wait: memory, CPU time, and how fast they are woken
    Blocked,
}

impl Part {
    /// As it is written on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
    }
}

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Parts to measure
    #[arg(
        long,
        value_delimiter = ',',
        value_enum,
        default_value = "bytes,throughput,save,delete,order,checkpoint,blocked"
    )]
    pub parts: Vec<Part>,
    #[command(flatten)]
    pub peers: PeerArgs,
    /// Elements of the one collection of `bytes`
    #[arg(long, value_name = "COUNT", default_value_t = 500_000)]
    pub bytes_elements: u64,
    /// Elements of the large collections of `throughput`, and items of the list of `order`
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1_000_000)]
    pub large: u64,
    /// Collections of ten elements
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    pub keys: u64,
    /// Elements of the collections that `delete` deletes
    #[arg(long, value_name = "COUNT", default_value_t = 5_000_000)]
    pub elements: u64,
    /// Members of the sorted set of `order`
    #[arg(long, value_name = "COUNT", default_value_t = 10_000_000)]
    pub members: u64,
    /// Fields of the hash of `save` and of `checkpoint` [default: 5,000,000 and 10,000,000]
    #[arg(long, value_name = "COUNT")]
    pub fields: Option<u64>,
    /// Fields that are changed before a checkpoint
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    pub changes: u64,
    /// Clients that wait
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    pub waiting: usize,
    /// Commands of `throughput`, as their names are in its table [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub commands: Option<Vec<String>>,
    /// Requests in flight on a connection
    #[arg(short = 'P', long, value_name = "LIST", value_delimiter = ',', default_value = "1,16")]
    pub pipelines: Vec<usize>,
    /// Connections
    #[arg(short = 'c', long, value_name = "COUNT", default_value_t = 50)]
    pub clients: usize,
    /// How often each measurement is repeated, the servers in turn
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    pub rounds: usize,
    /// Seconds that are measured of each command in each round
    #[arg(short = 't', long, value_name = "SECONDS", default_value_t = 0.5)]
    pub seconds: f64,
    /// Seconds before, not measured
    #[arg(long, value_name = "SECONDS", default_value_t = 0.1)]
    pub warm_up: f64,
    /// Requests a second on a fixed schedule, where latency is measured
    #[arg(short, long, value_name = "PER_SECOND", default_value_t = 10_000.0)]
    pub rate: f64,
    /// Seconds of load before a save or a deletion
    #[arg(long, value_name = "SECONDS", default_value_t = 4.0)]
    pub before: f64,
    /// Wake-ups a second
    #[arg(long, value_name = "PER_SECOND", default_value_t = 1000.0)]
    pub wake_rate: f64,
    /// Seconds of wake-ups, and of doing nothing
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub idle: f64,
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// A run of seconds, in which nothing is as large as it should be
    #[arg(long, visible_alias = "small")]
    pub quick: bool,
    #[command(flatten)]
    pub data: DataArgs,
    #[command(flatten)]
    pub cpus: CpuArgs,
    #[command(flatten)]
    pub out: OutArgs,
}

const SAVE_FIELDS: u64 = 5_000_000;
const CHECKPOINT_FIELDS: u64 = 10_000_000;

impl Args {
    /// With what `--quick` means.
    pub fn complete(&self) -> Args {
        let mut args = self.clone();
        if args.quick {
            (args.bytes_elements, args.large, args.keys) = (20_000, 5000, 500);
            (args.elements, args.members, args.fields) = (20_000, 20_000, Some(20_000));
            (args.changes, args.waiting, args.rounds) = (20, 100, 1);
            (args.seconds, args.warm_up, args.before, args.idle) = (0.02, 0.002, 0.15, 0.15);
            (args.rate, args.wake_rate) = (2000.0, 300.0);
        }
        args.rounds = args.rounds.max(1);
        args.clients = args.clients.max(1);
        for count in [&mut args.bytes_elements, &mut args.large, &mut args.elements, &mut args.members] {
            *count = (*count).max(1);
        }
        args.fields = args.fields.map(|count| count.max(1));
        args.changes = args.changes.max(1);
        // One key is one large collection.
        args.keys = args.keys.max(2);
        args
    }

    pub fn save_fields(&self) -> u64 {
        self.fields.unwrap_or(SAVE_FIELDS)
    }

    pub fn checkpoint_fields(&self) -> u64 {
        self.fields.unwrap_or(CHECKPOINT_FIELDS)
    }
}
