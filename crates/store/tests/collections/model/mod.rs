//! Models of collections, random changes of both, and what there is to be read. Nothing here fails on an error of the store,
//! which a store on a faulty device may give: such a change has not happened.

pub mod hash;
pub mod list;
pub mod set;
pub mod sorted_set;

use std::sync::mpsc;

use stillframe_store::{Fault, OpError, Store, Worker};

/// Done, or not at all.
pub type Tried = Result<(), OpError>;

/// Waits until what a fault names is there, or never will be.
pub fn load(store: &Store, worker: &mut Worker, fault: Fault) {
    let (sender, receiver) = mpsc::channel();
    store.load(fault, Box::new(move || sender.send(()).expect("the waiter is there")));
    worker.idle(|| receiver.recv()).expect("the load reports");
}

/// Runs an operation as a server does: on a fault, which has changed nothing, loads and runs it again.
pub fn tried<R>(
    store: &Store,
    worker: &mut Worker,
    mut operation: impl FnMut(&mut Worker) -> Result<R, OpError>,
) -> Result<R, OpError> {
    for _ in 0..10_000 {
        match operation(worker) {
            Err(OpError::Fault(fault)) => load(store, worker, fault),
            result => return result,
        }
    }
    panic!("the pages never come");
}
