//! The records that the machines returned, asked by what they are about.

use serde_json::{json, Value};
use stillframe_fork::status::Shares;

use crate::stats::median;

pub struct Records(Vec<Value>);

/// Which records: the value of a field.
pub type Where<'a> = [(&'a str, Value)];

impl Records {
    pub fn new(records: Vec<Value>) -> Self {
        Self(records)
    }

    pub fn json(&self) -> Value {
        json!(self.0)
    }

    pub fn select<'a>(&'a self, wanted: &'a Where<'a>) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(|record| wanted.iter().all(|(field, value)| record[*field] == *value))
    }

    /// The median over the rounds; nothing if there were none.
    pub fn median_of(&self, wanted: &Where<'_>, of: impl Fn(&Value) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.select(wanted).filter_map(of).collect();
        (!values.is_empty()).then(|| median(&values))
    }

    /// The median of a field, named as a JSON pointer.
    pub fn median(&self, wanted: &Where<'_>, field: &str) -> Option<f64> {
        self.median_of(wanted, |record| record.pointer(field)?.as_f64())
    }

    /// Values of a field in the order of their first appearance.
    pub fn distinct(&self, wanted: &Where<'_>, field: &str) -> Vec<Value> {
        let mut found: Vec<Value> = Vec::new();
        for record in self.select(wanted) {
            if !record[field].is_null() && !found.contains(&record[field]) {
                found.push(record[field].clone());
            }
        }
        found
    }
}

/// The counters in an array of a record; none if it has none.
pub fn counters(record: &Value, field: &str) -> Vec<u64> {
    let array = record.pointer(field).and_then(Value::as_array);
    array.into_iter().flatten().filter_map(Value::as_u64).collect()
}

/// Who copied tables: Async-fork's and On-Demand-Fork's counts together, of which a record has one.
pub fn shares(record: &Value, prefix: &str) -> Shares {
    let of = |field: &str| Shares::of(&counters(record, &format!("{prefix}/{field}")));
    let (copied, unshared) = match prefix {
        "" => (of("copied"), of("unshared")),
        _ => (of("tables_copied"), of("tables_unshared")),
    };
    Shares {
        child: copied.child + unshared.child,
        helper: copied.helper + unshared.helper,
        parent: copied.parent + unshared.parent,
    }
}

/// A strategy as the records name it, in words.
pub fn strategy_name(strategy: &str) -> String {
    match strategy {
        "default" => "default fork".to_owned(),
        "odf" => "On-Demand-Fork".to_owned(),
        "1" => "Async-fork, 1 thread".to_owned(),
        threads => format!("Async-fork, {threads} threads"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_what_was_asked() {
        let record =
            |mb: u64, ns: u64| json!({"kind": "fork", "mb": mb, "during": {"ns": ns}, "copied": [1, 2, 3]});
        let records = Records::new(vec![record(1, 10), record(1, 30), record(1, 20), record(2, 99)]);
        assert_eq!(records.median(&[("mb", json!(1))], "/during/ns"), Some(20.0));
        assert_eq!(records.median(&[("mb", json!(3))], "/during/ns"), None);
        assert_eq!(records.distinct(&[("kind", json!("fork"))], "mb"), [json!(1), json!(2)]);
        assert_eq!(shares(&record(1, 1), "").parent, 3);
    }
}
