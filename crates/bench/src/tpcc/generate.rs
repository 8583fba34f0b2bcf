//! What the tables have when a run begins (clause 4.3.3.1). Each table is made in the order of its keys; what two tables
//! share of a district (its orders) is drawn again from the same seed.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use zerocopy::{Immutable, IntoBytes};

use super::random::{data, digits, first_name, last_name, letters, text, Constants};
use super::schema::*;
use crate::error::Result;
use crate::kv::{KeyValue, TreeId, TreeRow};
use crate::progress::Progress;

/// Numbers of history rows that were loaded; those of runs are higher.
pub const LOAD_SESSION: u32 = 0;

/// What loads and runs have to agree about.
pub fn constants(seed: u64) -> Constants {
    Constants::of_load(&mut Rng::with_seed(seed))
}

pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_millis() as u64)
}

/// Fills empty tables. Returns how many seconds that took.
///
/// # Errors
/// Those of the store.
pub fn load(store: &dyn KeyValue, scale: Scale, seed: u64, progress: &str) -> Result<f64> {
    let begin = Instant::now();
    let source = Source { scale, seed, constants: constants(seed), date: now_ms() };
    let mut progress =
        Progress::new(format!("{progress}: loading {} warehouses", scale.warehouses), scale.bytes());
    let mut rows = source.rows().inspect(|(_, key, value)| progress.add((key.len() + value.len()) as u64));
    store.bulk_load(&mut rows)?;
    store.flush()?;
    Ok(begin.elapsed().as_secs_f64())
}

fn row(key: &(impl IntoBytes + Immutable), value: &(impl IntoBytes + Immutable)) -> Row {
    (key.as_bytes().to_vec(), value.as_bytes().to_vec())
}

struct Source {
    scale: Scale,
    seed: u64,
    constants: Constants,
    date: u64,
}

type Row = (Vec<u8>, Vec<u8>);
/// Makes the rows of one table that are a district's.
type Make = fn(&Source, u32, u8) -> Vec<Row>;

/// An order as two tables need it.
struct Draft {
    number: u32,
    customer: u32,
    line_count: u8,
}

impl Source {
    /// Of one part of one table.
    fn rng(&self, table: TreeId, warehouse: u32, district: u8) -> Rng {
        let place = u64::from(warehouse) << 16 | u64::from(district) << 8 | table.0 as u64;
        Rng::with_seed(self.seed ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Those of all tables, by table.
    fn rows(&self) -> impl Iterator<Item = TreeRow> + '_ {
        let warehouses = || 1..=self.scale.warehouses;
        let tables: [(TreeId, Make); 8] = [
            (DISTRICT, Source::district),
            (CUSTOMER, Source::customers),
            (CUSTOMER_BY_NAME, Source::names),
            (HISTORY, Source::history),
            (ORDER, Source::orders),
            (ORDER_BY_CUSTOMER, Source::orders_by_customer),
            (NEW_ORDER, Source::new_orders),
            (ORDER_LINE, Source::order_lines),
        ];
        let of_districts = tables.into_iter().flat_map(move |(tree, make)| {
            let districts = warehouses().flat_map(|w| (1..=DISTRICTS).map(move |d| (w, d)));
            districts.flat_map(move |(w, d)| make(self, w, d)).map(in_tree(tree))
        });
        let of_warehouses = warehouses().map(|warehouse| self.warehouse(warehouse)).map(in_tree(WAREHOUSE));
        let stock = warehouses().flat_map(|warehouse| self.stock(warehouse)).map(in_tree(STOCK));
        of_warehouses.chain(of_districts).chain(self.items().map(in_tree(ITEM))).chain(stock)
    }

    fn items(&self) -> impl Iterator<Item = Row> {
        let mut rng = self.rng(ITEM, 0, 0);
        (1..=self.scale.items).map(move |item| {
            let made = Item {
                image: rng.u32(1..=10_000).into(),
                name: Text::new(&text(&mut rng, 14..=24)),
                price: rng.i64(100..=10_000).into(),
                data: Text::new(&data(&mut rng)),
            };
            row(&item_key(item), &made)
        })
    }

    fn warehouse(&self, warehouse: u32) -> Row {
        let mut rng = self.rng(WAREHOUSE, warehouse, 0);
        let made = Warehouse {
            name: Text::new(&text(&mut rng, 6..=10)),
            address: address(&mut rng),
            tax: rng.i32(0..=2000).into(),
            ytd: (i64::from(DISTRICTS) * self.district_ytd()).into(),
        };
        row(&warehouse_key(warehouse), &made)
    }

    /// Each customer has paid 10.00.
    fn district_ytd(&self) -> i64 {
        i64::from(self.scale.customers) * 1000
    }

    fn stock(&self, warehouse: u32) -> impl Iterator<Item = Row> {
        let mut rng = self.rng(STOCK, warehouse, 0);
        (1..=self.scale.items).map(move |item| {
            let made = Stock {
                quantity: rng.i16(10..=100).into(),
                districts: std::array::from_fn(|_| letters(&mut rng)),
                ytd: 0.into(),
                order_count: 0.into(),
                remote_count: 0.into(),
                data: Text::new(&data(&mut rng)),
            };
            row(&stock_key(warehouse, item), &made)
        })
    }

    fn district(&self, warehouse: u32, district: u8) -> Vec<Row> {
        let mut rng = self.rng(DISTRICT, warehouse, district);
        let made = District {
            name: Text::new(&text(&mut rng, 6..=10)),
            address: address(&mut rng),
            tax: rng.i32(0..=2000).into(),
            ytd: self.district_ytd().into(),
            next_order: (self.scale.customers + 1).into(),
        };
        vec![row(&district_key(warehouse, district), &made)]
    }

    /// Last and first name of each customer of a district.
    fn name_list(&self, warehouse: u32, district: u8) -> Vec<(Name, Name)> {
        let mut rng = self.rng(CUSTOMER_BY_NAME, warehouse, district);
        let name = |customer| {
            let last = match customer <= self.scale.names() {
                true => last_name(customer - 1),
                false => self.constants.last_name(&mut rng, self.scale),
            };
            (last, first_name(&mut rng))
        };
        (1..=self.scale.customers).map(name).collect()
    }

    fn customers(&self, warehouse: u32, district: u8) -> Vec<Row> {
        let mut rng = self.rng(CUSTOMER, warehouse, district);
        let names = self.name_list(warehouse, district);
        let make = |(index, (last, first)): (usize, (Name, Name))| {
            let made = Customer {
                first,
                middle: *b"OE",
                last,
                address: address(&mut rng),
                phone: digits(&mut rng),
                since: self.date.into(),
                credit: if rng.u8(..10) == 0 { *b"BC" } else { *b"GC" },
                credit_limit: 5_000_000.into(),
                discount: rng.i32(0..=5000).into(),
                balance: (-1000).into(),
                ytd_payment: 1000.into(),
                payment_count: 1.into(),
                delivery_count: 0.into(),
                data: Text::new(&text(&mut rng, 300..=500)),
            };
            row(&customer_key(warehouse, district, index as u32 + 1), &made)
        };
        names.into_iter().enumerate().map(make).collect()
    }

    fn names(&self, warehouse: u32, district: u8) -> Vec<Row> {
        let names = self.name_list(warehouse, district).into_iter().zip(1..);
        let key = |((last, first), customer): ((Name, Name), u32)| CustomerNameKey {
            warehouse: warehouse.into(),
            district,
            last,
            first,
            customer: customer.into(),
        };
        sorted(names.map(|name| row(&key(name), &[0u8; 0])))
    }

    fn history(&self, warehouse: u32, district: u8) -> Vec<Row> {
        let mut rng = self.rng(HISTORY, warehouse, district);
        let make = |customer: u32| {
            let key = HistoryKey {
                warehouse: warehouse.into(),
                district,
                customer: customer.into(),
                session: LOAD_SESSION.into(),
                number: 0.into(),
            };
            let made = History {
                warehouse: warehouse.into(),
                district,
                date: self.date.into(),
                amount: 1000.into(),
                data: Text::new(&text(&mut rng, 12..=24)),
            };
            row(&key, &made)
        };
        (1..=self.scale.customers).map(make).collect()
    }

    /// The orders of a district: one of each customer, in random order.
    fn drafts(&self, warehouse: u32, district: u8) -> impl Iterator<Item = Draft> {
        let mut rng = self.rng(ORDER, warehouse, district);
        let mut customers: Vec<u32> = (1..=self.scale.customers).collect();
        rng.shuffle(&mut customers);
        customers.into_iter().zip(1..).map(move |(customer, number)| {
            let line_count = rng.u8(5..=15);
            Draft { number, customer, line_count }
        })
    }

    fn is_delivered(&self, order: u32) -> bool {
        order <= self.scale.delivered()
    }

    fn orders(&self, warehouse: u32, district: u8) -> Vec<Row> {
        let mut rng = self.rng(TreeId(TREES.len()), warehouse, district);
        let make = |draft: Draft| {
            let made = Order {
                customer: draft.customer.into(),
                entry_date: self.date.into(),
                carrier: if self.is_delivered(draft.number) { rng.u8(1..=10) } else { 0 },
                line_count: draft.line_count,
                is_all_local: 1,
            };
            row(&order_key(warehouse, district, draft.number), &made)
        };
        self.drafts(warehouse, district).map(make).collect()
    }

    fn orders_by_customer(&self, warehouse: u32, district: u8) -> Vec<Row> {
        sorted(self.drafts(warehouse, district).map(|draft| {
            row(&order_by_customer_key(warehouse, district, draft.customer, draft.number), &[0u8; 0])
        }))
    }

    fn new_orders(&self, warehouse: u32, district: u8) -> Vec<Row> {
        let open = self.scale.delivered() + 1..=self.scale.customers;
        open.map(|order| row(&order_key(warehouse, district, order), &[0u8; 0])).collect()
    }

    fn order_lines(&self, warehouse: u32, district: u8) -> Vec<Row> {
        let mut rng = self.rng(ORDER_LINE, warehouse, district);
        let mut rows = Vec::new();
        for draft in self.drafts(warehouse, district) {
            for line in 1..=draft.line_count {
                let is_delivered = self.is_delivered(draft.number);
                let made = OrderLine {
                    item: rng.u32(1..=self.scale.items).into(),
                    supply_warehouse: warehouse.into(),
                    delivery_date: if is_delivered { self.date } else { 0 }.into(),
                    quantity: 5,
                    amount: if is_delivered { 0 } else { rng.i64(1..=999_999) }.into(),
                    district_info: letters(&mut rng),
                };
                rows.push(row(&order_line_key(warehouse, district, draft.number, line), &made));
            }
        }
        rows
    }
}

fn in_tree(tree: TreeId) -> impl Fn(Row) -> TreeRow {
    move |(key, value)| (tree, key, value)
}

fn sorted(rows: impl Iterator<Item = Row>) -> Vec<Row> {
    let mut rows: Vec<Row> = rows.collect();
    rows.sort_unstable();
    rows
}

fn address(rng: &mut Rng) -> Address {
    let mut zip = *b"000011111";
    zip[..4].copy_from_slice(&digits::<4>(rng));
    Address {
        street_1: Text::new(&text(rng, 10..=20)),
        street_2: Text::new(&text(rng, 10..=20)),
        city: Text::new(&text(rng, 10..=20)),
        state: letters(rng),
        zip,
    }
}
