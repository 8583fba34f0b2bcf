//! Transfers between accounts, each of which is a transaction: nobody sees a half of one, nor does a save.

use stillframe_testkit::{Client, Reply};

use crate::conn::{words, Conn, Words};
use crate::Soak;

/// Accounts that are keys, and as many that are fields of a hash.
const ACCOUNTS: u32 = 32;
const FIRST_BALANCE: i64 = 1_000_000;
const TOTAL: i64 = 2 * ACCOUNTS as i64 * FIRST_BALANCE;

pub struct Bank;

/// Reads all balances.
fn reads() -> Vec<Words> {
    let keys: Vec<String> = (0..ACCOUNTS).map(|number| format!("acc:{number}")).collect();
    vec![words(&format!("MGET {}", keys.join(" "))), words("HVALS accounts")]
}

fn total(replies: &[Reply]) -> i64 {
    let balances = replies.iter().flat_map(Reply::items);
    balances.map(|balance| balance.text().parse::<i64>().expect("a balance")).sum()
}

impl Bank {
    pub fn open(run: &Soak) -> Bank {
        let mut conn = run.connect("bank");
        for number in 0..ACCOUNTS {
            conn.expect(&format!("SET acc:{number} {FIRST_BALANCE}"), Reply::ok());
            conn.expect(&format!("HSET accounts {number} {FIRST_BALANCE}"), Reply::Int(1));
        }
        Bank
    }

    /// Moves amounts until the end.
    pub fn transfer(&self, run: &Soak, number: u64) {
        let (mut conn, mut rng) = (run.connect("transfer"), run.rng(10 + number));
        while run.goes_on() {
            let (from, to, amount) = (rng.u32(..ACCOUNTS), rng.u32(..ACCOUNTS), rng.i64(1..100));
            if rng.u32(..4) > 0 {
                let commands = vec![
                    words(&format!("DECRBY acc:{from} {amount}")),
                    words(&format!("HINCRBY accounts {to} {amount}")),
                ];
                assert!(conn.transaction(commands).is_some(), "nothing is watched");
                continue;
            }
            // What it has read may have changed; then nothing happens.
            let other = (from + 1 + rng.u32(..ACCOUNTS - 1)) % ACCOUNTS;
            conn.run_line(&format!("WATCH acc:{from} acc:{other}"));
            let replies = conn.run(words(&format!("MGET acc:{from} acc:{other}")));
            let balance = |at: usize| replies.items()[at].text().parse::<i64>().expect("a balance");
            let commands = vec![
                words(&format!("SET acc:{from} {}", balance(0) - amount)),
                words(&format!("SET acc:{other} {}", balance(1) + amount)),
            ];
            let _ = conn.transaction(commands);
        }
    }

    /// Adds all balances up until the end.
    pub fn audit(&self, run: &Soak) {
        let mut conn = run.connect("audit");
        while run.goes_on() {
            self.check(&mut conn);
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    pub fn check(&self, conn: &mut Conn<'_>) {
        let replies = conn.transaction(reads()).expect("nothing is watched");
        assert_eq!(total(&replies), TOTAL, "a half of a transfer is seen");
    }

    /// The same of a server with a backup.
    pub fn check_backup(&self, client: &mut Client) {
        let replies: Vec<Reply> =
            reads().iter().map(|read| client.try_run_words(read).expect("a reply")).collect();
        assert_eq!(total(&replies), TOTAL, "a backup has a half of a transfer");
    }
}
