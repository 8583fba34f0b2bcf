//! Tables. A row is fixed in its layout, its texts as long as they may be; keys are big-endian, so that they sort by their
//! numbers. Money is in cents, rates are in hundredths of a per cent, dates in milliseconds since 1970 (0: none).

use std::ops::Range;

use serde::{Deserialize, Serialize};
use zerocopy::big_endian as be;
use zerocopy::little_endian::{I16, I32, I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{BenchError, Result};
use crate::kv::{Transaction, TreeId};

pub const TREES: [&str; 11] = [
    "warehouse",
    "district",
    "customer",
    "customer_by_name",
    "history",
    "order",
    "order_by_customer",
    "new_order",
    "order_line",
    "item",
    "stock",
];
pub const WAREHOUSE: TreeId = TreeId(0);
pub const DISTRICT: TreeId = TreeId(1);
pub const CUSTOMER: TreeId = TreeId(2);
pub const CUSTOMER_BY_NAME: TreeId = TreeId(3);
pub const HISTORY: TreeId = TreeId(4);
pub const ORDER: TreeId = TreeId(5);
pub const ORDER_BY_CUSTOMER: TreeId = TreeId(6);
pub const NEW_ORDER: TreeId = TreeId(7);
pub const ORDER_LINE: TreeId = TreeId(8);
pub const ITEM: TreeId = TreeId(9);
pub const STOCK: TreeId = TreeId(10);

pub const DISTRICTS: u8 = 10;
/// A rate of 1.
pub const RATE_ONE: i64 = 10_000;

/// How large the tables are; only the standard's sizes make figures that can be compared with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scale {
    pub warehouses: u32,
    pub items: u32,
    /// Of each district, which begins with as many orders.
    pub customers: u32,
}

impl Scale {
    pub fn standard(warehouses: u32) -> Scale {
        Scale { warehouses, items: 100_000, customers: 3000 }
    }

    /// A hundredth of it.
    pub fn small(warehouses: u32) -> Scale {
        Scale { warehouses, items: 1000, customers: 30 }
    }

    /// Different last names.
    pub fn names(self) -> u32 {
        self.customers.min(1000)
    }

    /// Orders that are delivered when the run begins: 2100 of 3000.
    pub fn delivered(self) -> u32 {
        self.customers / 10 * 7
    }

    /// Rows with their keys, about.
    pub fn bytes(self) -> u64 {
        let customer = size_of::<Customer>() + size_of::<CustomerKey>() + size_of::<CustomerNameKey>();
        let order = size_of::<Order>() + size_of::<OrderKey>() + size_of::<OrderByCustomerKey>();
        let lines = 10 * (size_of::<OrderLine>() + size_of::<OrderLineKey>());
        let history = size_of::<History>() + size_of::<HistoryKey>();
        let of_customer = (customer + order + lines + history) as u64;
        let stock = (size_of::<Stock>() + size_of::<StockKey>()) as u64;
        let of_warehouse =
            u64::from(self.customers) * u64::from(DISTRICTS) * of_customer + u64::from(self.items) * stock;
        u64::from(self.warehouses) * of_warehouse + u64::from(self.items) * size_of::<Item>() as u64
    }
}

/// A text of at most `N` bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Text<const N: usize> {
    length: U16,
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    /// What does not fit is cut off.
    pub fn new(text: &[u8]) -> Self {
        let length = text.len().min(N);
        let mut bytes = [0; N];
        bytes[..length].copy_from_slice(&text[..length]);
        Text { length: U16::new(length as u16), bytes }
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length.get()).min(N)]
    }
}

/// Last and first names sort by their bytes, padded with zeros.
pub const NAME_BYTES: usize = 16;
pub type Name = [u8; NAME_BYTES];

macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
            #[repr(C)]
            pub struct $name { $(pub $field: $kind),* }
        )*
    };
}

layouts! {
    Address { street_1: Text<20>, street_2: Text<20>, city: Text<20>, state: [u8; 2], zip: [u8; 9] }
    Warehouse { name: Text<10>, address: Address, tax: I32, ytd: I64 }
    District { name: Text<10>, address: Address, tax: I32, ytd: I64, next_order: U32 }
    Customer {
        first: Name, middle: [u8; 2], last: Name, address: Address, phone: [u8; 16], since: U64, credit: [u8; 2],
        credit_limit: I64, discount: I32, balance: I64, ytd_payment: I64, payment_count: U32, delivery_count: U32,
        data: Text<500>,
    }
    /// Of the warehouse and district where it was paid; the key has the customer's.
    History { warehouse: U32, district: u8, date: U64, amount: I64, data: Text<24> }
    /// Carrier 0: not delivered.
    Order { customer: U32, entry_date: U64, carrier: u8, line_count: u8, is_all_local: u8 }
    OrderLine {
        item: U32, supply_warehouse: U32, delivery_date: U64, quantity: u8, amount: I64, district_info: [u8; 24],
    }
    Item { image: U32, name: Text<24>, price: I64, data: Text<50> }
    Stock {
        quantity: I16, districts: [[u8; 24]; DISTRICTS as usize], ytd: U32, order_count: U32, remote_count: U32,
        data: Text<50>,
    }

    WarehouseKey { warehouse: be::U32 }
    DistrictKey { warehouse: be::U32, district: u8 }
    CustomerKey { warehouse: be::U32, district: u8, customer: be::U32 }
    CustomerNameKey { warehouse: be::U32, district: u8, last: Name, first: Name, customer: be::U32 }
    /// Of the customer; the rest makes it one of its kind.
    HistoryKey { warehouse: be::U32, district: u8, customer: be::U32, session: be::U32, number: be::U64 }
    OrderKey { warehouse: be::U32, district: u8, order: be::U32 }
    OrderByCustomerKey { warehouse: be::U32, district: u8, customer: be::U32, order: be::U32 }
    OrderLineKey { warehouse: be::U32, district: u8, order: be::U32, line: u8 }
    ItemKey { item: be::U32 }
    StockKey { warehouse: be::U32, item: be::U32 }
}

pub fn warehouse_key(warehouse: u32) -> WarehouseKey {
    WarehouseKey { warehouse: warehouse.into() }
}

pub fn district_key(warehouse: u32, district: u8) -> DistrictKey {
    DistrictKey { warehouse: warehouse.into(), district }
}

pub fn customer_key(warehouse: u32, district: u8, customer: u32) -> CustomerKey {
    CustomerKey { warehouse: warehouse.into(), district, customer: customer.into() }
}

pub fn order_key(warehouse: u32, district: u8, order: u32) -> OrderKey {
    OrderKey { warehouse: warehouse.into(), district, order: order.into() }
}

pub fn order_by_customer_key(warehouse: u32, district: u8, customer: u32, order: u32) -> OrderByCustomerKey {
    OrderByCustomerKey {
        warehouse: warehouse.into(),
        district,
        customer: customer.into(),
        order: order.into(),
    }
}

pub fn order_line_key(warehouse: u32, district: u8, order: u32, line: u8) -> OrderLineKey {
    OrderLineKey { warehouse: warehouse.into(), district, order: order.into(), line }
}

pub fn item_key(item: u32) -> ItemKey {
    ItemKey { item: item.into() }
}

pub fn stock_key(warehouse: u32, item: u32) -> StockKey {
    StockKey { warehouse: warehouse.into(), item: item.into() }
}

/// All keys of a district, in any table that has it in front.
pub fn district_keys(warehouse: u32, district: u8) -> Range<DistrictKey> {
    district_key(warehouse, district)..district_key(warehouse, district + 1)
}

/// A row or key as it is stored.
///
/// # Errors
/// It has another size: the store has mixed something up.
pub fn decode<T: FromBytes>(bytes: &[u8]) -> Result<T> {
    T::read_from_bytes(bytes).map_err(|_| {
        BenchError::Failed(format!("a row or key has {} bytes instead of {}", bytes.len(), size_of::<T>()))
    })
}

/// The row of a key, if there is one.
///
/// # Errors
/// Those of the store, and of [`decode`].
pub fn find<T: FromBytes>(
    txn: &mut dyn Transaction,
    tree: TreeId,
    key: &(impl IntoBytes + Immutable),
) -> Result<Option<T>> {
    let mut row = None;
    txn.get(tree, key.as_bytes(), &mut |bytes| row = Some(decode(bytes)))?;
    row.transpose()
}

/// The row of a key that is there.
///
/// # Errors
/// Those of [`find`]; there is none.
pub fn read<T: FromBytes>(
    txn: &mut dyn Transaction,
    tree: TreeId,
    key: &(impl IntoBytes + Immutable),
) -> Result<T> {
    find(txn, tree, key)?.ok_or_else(|| missing(tree, key.as_bytes()))
}

/// The rows of keys, as far as there are any, in one call.
///
/// # Errors
/// As of [`find`].
pub fn find_many<T: FromBytes>(
    txn: &mut dyn Transaction,
    tree: TreeId,
    keys: &[impl IntoBytes + Immutable],
) -> Result<Vec<Option<T>>> {
    let mut rows: Vec<Option<Result<T>>> = keys.iter().map(|_| None).collect();
    let bytes: Vec<&[u8]> = keys.iter().map(IntoBytes::as_bytes).collect();
    txn.get_many(tree, &bytes, &mut |index, row| rows[index] = Some(decode(row)))?;
    rows.into_iter().map(Option::transpose).collect()
}

/// The rows of keys that are there, in one call.
///
/// # Errors
/// As of [`read`].
pub fn read_many<T: FromBytes>(
    txn: &mut dyn Transaction,
    tree: TreeId,
    keys: &[impl IntoBytes + Immutable],
) -> Result<Vec<T>> {
    let rows = find_many(txn, tree, keys)?.into_iter().zip(keys);
    rows.map(|(row, key)| row.ok_or_else(|| missing(tree, key.as_bytes()))).collect()
}

fn missing(tree: TreeId, key: &[u8]) -> BenchError {
    BenchError::Failed(format!("{}: a row is missing: {key:?}", TREES[tree.0]))
}

/// # Errors
/// Those of the store.
pub fn write(
    txn: &mut dyn Transaction,
    tree: TreeId,
    key: &(impl IntoBytes + Immutable),
    row: &(impl IntoBytes + Immutable),
) -> Result<()> {
    txn.put(tree, key.as_bytes(), row.as_bytes())
}
