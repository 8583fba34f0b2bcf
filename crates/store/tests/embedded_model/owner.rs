//! A thread with structures of its own under every kind of handle, and its share of what all have.

use std::ops::ControlFlow;

use stillframe_store::{End, OpError, ScoredRange, Setting, Store, Tree, TreeError};

use crate::ops::{Answer, Model, Op, Record, Script, ACCOUNTS, MONEY};

/// Of all threads: the number of the operation that each is about to do, and what they count together.
const SHARED: &str = "shared";
const COUNT: &str = "count";
const BANK: &str = "bank";
/// So many operations lie between two sums over the bank.
const AUDIT_EVERY: u64 = 97;
/// So many between two walks over all that the thread has.
const COMPARE_EVERY: u64 = 20_011;

pub struct Owner {
    store: Store,
    script: Script,
    model: Model,
    /// Of the next operation.
    next: u64,
}

fn stays<T, E: std::fmt::Display>(result: Result<T, E>, what: &str) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Opens the accounts of all, if there are none.
pub fn open_bank(store: &Store) {
    let bank = stays(store.tree(BANK), "the bank");
    if stays(bank.is_empty(), "the bank") {
        let open = bank.transaction(|accounts| {
            (0..ACCOUNTS).try_for_each(|account| accounts.put(account.to_be_bytes(), 1_000_u64.to_be_bytes()))
        });
        stays(open, "the accounts");
    }
}

fn balance(bytes: Option<Vec<u8>>) -> u64 {
    let bytes = bytes.expect("an account is never closed");
    u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

/// Money moves from hand to hand, and none is lost: in a step of its own, no other transaction comes between.
pub fn audit(store: &Store) {
    let bank = stays(store.tree(BANK), "the bank");
    let sum = bank.transaction(|accounts| {
        let all: Result<Vec<_>, TreeError> = accounts.range(..).collect();
        Ok::<u64, TreeError>(all?.into_iter().map(|(_, value)| balance(Some(value))).sum())
    });
    assert_eq!(stays(sum, "an audit"), MONEY, "money");
}

/// What all threads have counted together.
pub fn shared_count(store: &Store) -> u64 {
    stays(store.hash(SHARED).get(COUNT), "the count").map_or(0, |bytes| balance(Some(bytes)))
}

impl Owner {
    /// Finds out where the store is: all structures are as they were at one moment, which lay between two operations.
    pub fn resume(store: &Store, script: Script) -> Owner {
        let (store, model) = (store.clone(), Model::default());
        let mut owner = Owner { store, script, model, next: 0 };
        let step = stays(owner.store.hash(SHARED).get(owner.step_field()), "the step");
        let Some(step) = step.map(|bytes| balance(Some(bytes))) else {
            assert_eq!(owner.difference(), None, "thread {} has begun", script.thread);
            return owner;
        };
        (0..step).for_each(|number| drop(owner.model.apply(&script.op(number))));
        owner.next = step;
        let Some(before) = owner.difference() else { return owner };
        owner.model.apply(&script.op(step));
        owner.next = step + 1;
        if let Some(after) = owner.difference() {
            panic!(
                "thread {}: neither before step {step} ({before}) nor after it ({after}): {:?}",
                script.thread,
                script.op(step)
            );
        }
        owner
    }

    /// How many operations the store may have of this thread: the next one, too, if its structures do not tell.
    pub fn most_done(&self) -> u64 {
        self.next + 1
    }

    /// How often it has counted up, at least and at most.
    pub fn counts(&self) -> (u64, u64) {
        let is_open = matches!(self.script.op(self.next), Op::Count);
        (self.model.count, self.model.count + u64::from(is_open))
    }

    /// After [`Owner::resume`]: only the sum of all tells whether the last operation has counted.
    pub fn settle(&mut self, has_counted: bool) {
        if has_counted {
            self.model.apply(&self.script.op(self.next));
            self.next += 1;
        }
    }

    /// Does operations until `goes_on` says no; it is told the number of each before.
    pub fn run(&mut self, mut goes_on: impl FnMut(u64) -> bool) {
        while goes_on(self.next) {
            let op = self.script.op(self.next);
            let field = self.step_field();
            stays(self.store.hash(SHARED).set(field, self.next.to_be_bytes()), "the step");
            let found = stays(self.perform(&op), &format!("{op:?}"));
            let expected = self.model.apply(&op);
            if found != expected {
                panic!(
                    "thread {} at {}: {} and not {}: {op:?}",
                    self.script.thread,
                    self.next,
                    found.told(),
                    expected.told()
                );
            }
            self.next += 1;
            if self.next % AUDIT_EVERY == 0 {
                audit(&self.store);
            }
            if self.next % COMPARE_EVERY == 0 {
                assert_eq!(self.difference(), None, "thread {} at {}", self.script.thread, self.next);
            }
        }
    }

    fn step_field(&self) -> String {
        format!("step of {}", self.script.thread)
    }

    fn key(&self, kind: &str) -> String {
        format!("{kind} of {}", self.script.thread)
    }

    fn tree(&self) -> Result<Tree, TreeError> {
        self.store.tree(self.key("tree"))
    }

    fn perform(&self, op: &Op) -> Result<Answer, Box<dyn std::error::Error>> {
        Ok(match op {
            Op::HashSet(_) | Op::HashRemove(_) | Op::HashRenew(..) | Op::Count => self.perform_on_hash(op)?,
            Op::ListPush { .. } | Op::ListPop { .. } | Op::ListSet(..) | Op::ListTrim(..) => {
                self.perform_on_list(op)?
            }
            Op::SetAdd(_) | Op::SetRemove(_) => self.perform_on_set(op)?,
            Op::SortedInsert(..) | Op::SortedAdd(..) | Op::SortedRemove(_) => {
                self.perform_on_sorted_set(op)?
            }
            Op::Transfer { from, to, amount } => {
                self.transfer(*from, *to, *amount)?;
                Answer::None
            }
            _ => self.perform_on_tree(op)?,
        })
    }

    fn perform_on_tree(&self, op: &Op) -> Result<Answer, TreeError> {
        Ok(match op {
            Op::TreePut((key, value)) => Answer::Is(self.tree()?.put(key, value)?),
            Op::TreeRemove(key) => Answer::Is(self.tree()?.remove(key)?),
            Op::TreeTransaction { writes, is_kept } => {
                self.write_all(writes, *is_kept)?;
                Answer::None
            }
            Op::TreeRemoveRange(from, to) => {
                let removed = self.tree()?.transaction(|tree| {
                    let found: Result<Vec<Record>, TreeError> = tree.range(&from[..]..&to[..]).collect();
                    let found = found?;
                    found.iter().try_for_each(|(key, _)| tree.remove(key))?;
                    Ok::<_, TreeError>(found.len() as u64)
                });
                Answer::Count(removed?)
            }
            Op::TreeDrop => {
                self.store.drop_tree(self.key("tree"))?;
                Answer::None
            }
            Op::TreeFill(records) => {
                let tree = self.tree()?;
                match tree.is_empty()? {
                    true => Answer::Count(tree.bulk_load(records.iter().map(|(key, value)| (key, value)))?),
                    false => Answer::None,
                }
            }
            _ => Answer::None,
        })
    }

    fn write_all(&self, writes: &[(Vec<u8>, Option<Vec<u8>>)], is_kept: bool) -> Result<(), TreeError> {
        let given_up = self.tree()?.transaction(|tree| {
            for (key, value) in writes {
                match value {
                    Some(value) => tree.put(key, value)?,
                    None => tree.remove(key)?,
                }
                assert_eq!(tree.get(key)?, *value, "what a transaction has written");
            }
            // `Busy` stands for the body's own error.
            if is_kept {
                Ok(())
            } else {
                Err(TreeError::Busy)
            }
        });
        match given_up {
            Err(TreeError::Busy) if !is_kept => Ok(()),
            other => other,
        }
    }

    fn transfer(&self, from: u64, to: u64, amount: u64) -> Result<(), TreeError> {
        self.store.tree(BANK)?.transaction(|accounts| {
            let has = balance(accounts.get(from.to_be_bytes())?);
            let amount = amount.min(has);
            accounts.put(from.to_be_bytes(), (has - amount).to_be_bytes())?;
            let has = balance(accounts.get(to.to_be_bytes())?);
            accounts.put(to.to_be_bytes(), (has + amount).to_be_bytes())
        })
    }

    fn perform_on_hash(&self, op: &Op) -> Result<Answer, OpError> {
        let hash = self.store.hash(self.key("hash"));
        Ok(match op {
            Op::HashSet(pairs) => {
                let pairs: Vec<_> = pairs.iter().map(|(field, value)| (&field[..], &value[..])).collect();
                Answer::Count(hash.set_all(&pairs)?)
            }
            Op::HashRemove(field) => Answer::Is(hash.remove(field)?),
            Op::HashRenew(field, byte) => {
                hash.renew(field, |old| [old.unwrap_or_default(), &[*byte]].concat())?;
                Answer::None
            }
            _ => {
                let next =
                    |old: Option<&[u8]>| old.map_or(1, |old| balance(Some(old.to_vec())) + 1).to_be_bytes();
                self.store.hash(SHARED).renew(COUNT, next)?;
                Answer::None
            }
        })
    }

    fn perform_on_list(&self, op: &Op) -> Result<Answer, OpError> {
        let list = self.store.list(self.key("list"));
        let end = |is_front: bool| if is_front { End::Left } else { End::Right };
        Ok(match op {
            Op::ListPush { is_front, items } => {
                let items: Vec<_> = items.iter().map(|item| &item[..]).collect();
                Answer::Count(list.push_all(end(*is_front), &items)?)
            }
            Op::ListPop { is_front: true } => Answer::Value(list.pop_front()?),
            Op::ListPop { .. } => Answer::Value(list.pop_back()?),
            Op::ListSet(index, item) => Answer::Is(list.set(*index, item)? == Setting::Done),
            Op::ListTrim(first, last) => {
                list.trim(*first, *last)?;
                Answer::None
            }
            _ => Answer::None,
        })
    }

    fn perform_on_set(&self, op: &Op) -> Result<Answer, OpError> {
        let set = self.store.set(self.key("set"));
        Ok(match op {
            Op::SetAdd(members) => {
                let members: Vec<_> = members.iter().map(|member| &member[..]).collect();
                Answer::Count(set.add_all(&members)?)
            }
            Op::SetRemove(member) => Answer::Is(set.remove(member)?),
            _ => Answer::None,
        })
    }

    fn perform_on_sorted_set(&self, op: &Op) -> Result<Answer, OpError> {
        let sorted = self.store.sorted_set(self.key("sorted set"));
        Ok(match op {
            Op::SortedInsert(member, score) => Answer::Is(sorted.insert(member, *score)?),
            Op::SortedAdd(member, more) => Answer::Score(sorted.add(member, *more)?),
            Op::SortedRemove(member) => Answer::Is(sorted.remove(member)?),
            _ => Answer::None,
        })
    }

    /// Where the store differs from the model, if it does.
    fn difference(&self) -> Option<String> {
        let tree: Result<Vec<Record>, TreeError> = stays(self.tree(), "the tree").iter().collect();
        let tree = stays(tree, "the tree");
        if !tree.iter().map(|(key, value)| (key, value)).eq(&self.model.tree) {
            return Some(format!("tree of {} records, not {}", tree.len(), self.model.tree.len()));
        }
        let (hash, list, set, sorted) = stays(self.collections(), "a collection");
        if hash.len() != self.model.hash.len()
            || hash.iter().any(|(key, value)| self.model.hash.get(key) != Some(value))
        {
            return Some(format!("hash of {} fields, not {}", hash.len(), self.model.hash.len()));
        }
        if !list.iter().eq(&self.model.list) {
            return Some(format!("list of {} items, not {}", list.len(), self.model.list.len()));
        }
        if set.len() != self.model.set.len() || set.iter().any(|member| !self.model.set.contains(member)) {
            return Some(format!("set of {} members, not {}", set.len(), self.model.set.len()));
        }
        let mut expected: Vec<_> =
            self.model.sorted.iter().map(|(member, score)| (member.clone(), *score)).collect();
        expected.sort_by(|a, b| a.1.partial_cmp(&b.1).expect("a number").then_with(|| a.0.cmp(&b.0)));
        (sorted != expected)
            .then(|| format!("sorted set of {} members, not {}", sorted.len(), expected.len()))
    }

    #[expect(clippy::type_complexity, reason = "one list for each kind")]
    fn collections(&self) -> Result<(Vec<Record>, Vec<Vec<u8>>, Vec<Vec<u8>>, Vec<(Vec<u8>, f64)>), OpError> {
        let all = ControlFlow::Continue(());
        let fields = std::cell::RefCell::new(Vec::new());
        self.store.hash(self.key("hash")).for_each(
            || fields.borrow_mut().clear(),
            |field, value| {
                fields.borrow_mut().push((field.to_vec(), value.to_vec()));
                all
            },
        )?;
        let items = std::cell::RefCell::new(Vec::new());
        self.store.list(self.key("list")).for_each(
            0,
            -1,
            || items.borrow_mut().clear(),
            |item| {
                items.borrow_mut().push(item.to_vec());
                all
            },
        )?;
        let members = self.store.set(self.key("set")).members()?;
        let scored = std::cell::RefCell::new(Vec::new());
        let everything = ScoredRange::Ranks { first: 0, last: -1 };
        self.store.sorted_set(self.key("sorted set")).for_each(
            &everything,
            false,
            || scored.borrow_mut().clear(),
            |member, score| {
                scored.borrow_mut().push((member.to_vec(), score));
                all
            },
        )?;
        Ok((fields.into_inner(), items.into_inner(), members, scored.into_inner()))
    }
}
