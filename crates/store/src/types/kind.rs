//! What the store has to know of a type of collections beside its commands: how its elements are gone through, copied, put,
//! measured, checked and expired. `kinds.rs` lists the types.
//!
//! A string has no elements: its record is all that there is, and what is done with any record is done with it.

use std::ops::ControlFlow;

use stillframe_pagepool::PageId;

use crate::blobs::{Bytes, Given, Made};
use crate::error::SaveError;
use crate::keyspace::{Keyspace, Op, PageCheck};
use crate::page::Page;
use crate::rdb::{CollectionKind, Element, Parts};
use crate::stop::Stop;
use crate::tree::hash::Grown;
use crate::tree::{Pages, Tree};
use crate::worker::Worker;
use crate::{DbId, Key, OpError, UnixMillis};

/// What is done with each element that a view gives.
pub(super) type Each<'f> = &'f mut dyn FnMut(Element<'_>) -> Result<(), SaveError>;

/// An element that an operation gives, by its parts; what its type does not have is empty, 0 or `None`.
#[derive(Debug)]
pub(super) struct GivenElement<'a> {
    /// Item, member or field.
    pub name: Given<'a>,
    pub value: Given<'a>,
    pub score: f64,
    pub deadline: Option<UnixMillis>,
}

impl<'a> GivenElement<'a> {
    pub fn named(name: Given<'a>) -> GivenElement<'a> {
        GivenElement { name, value: Given::Here(&[]), score: 0.0, deadline: None }
    }

    /// As of [`Given::held`].
    pub fn held(self) -> Parts<'a> {
        let GivenElement { name, value, score, deadline } = self;
        Parts { name: name.held(), value: value.held(), score, deadline }
    }
}

/// An element that is to be put into a collection, by its parts; what its type does not have is not looked at.
#[derive(Clone, Copy, Debug)]
pub struct NewElement<'a> {
    /// Item, member or field.
    pub name: Bytes<'a>,
    pub value: Bytes<'a>,
    pub score: f64,
    pub deadline: Option<UnixMillis>,
}

/// What an operation gives elements to.
pub(super) struct Taker<'t> {
    /// Told how many there are before the first, also when the operation begins anew.
    pub begin: &'t mut dyn FnMut(u64),
    pub give: &'t mut dyn FnMut(GivenElement<'_>) -> ControlFlow<()>,
}

/// A type of collections.
pub(super) trait Kind: Sync {
    /// What it is in dumps, and which parts its elements have.
    fn dumped_as(&self) -> CollectionKind;

    /// The tree of a large one whose leaves have all elements, in the order in which they are given.
    ///
    /// # Errors
    /// It has not the trees that its type has.
    fn tree_of_elements(&self, grown: &Grown) -> Result<Tree, SaveError>;

    /// Gives the elements of a packed one to `f`. `is_timed`: its body says that some have deadlines.
    ///
    /// # Errors
    /// What `f` says.
    fn for_each_packed(&self, run: &[u8], is_timed: bool, f: Each<'_>) -> Result<(), SaveError>;

    /// Gives the elements of a leaf of that tree to `f`, from copies of pages.
    ///
    /// # Errors
    /// A page that cannot be read or is none of the tree, or what `f` says.
    fn for_each_in_leaf(
        &self,
        pages: &dyn Pages,
        pid: PageId,
        leaf: &Page,
        f: Each<'_>,
    ) -> Result<(), SaveError>;

    /// Gives the elements of the collection at a key whose time is not over, until the taker breaks. Whether it is there.
    ///
    /// # Errors
    /// [`OpError`]; what was given does not count then.
    fn give(
        &self,
        op: &mut Op<'_>,
        at: (DbId, &Key<'_>),
        to: Taker<'_>,
        run: &mut Vec<u8>,
    ) -> Result<bool, OpError>;

    /// Puts elements into the collection at a key, behind those that it has, and makes it if there is none. How many were not
    /// there before. `were_packed`: they come from a container that Redis takes over as it is.
    ///
    /// # Errors
    /// [`OpError`].
    fn put(
        &self,
        worker: &mut Worker,
        at: (DbId, &Key<'_>),
        elements: &[NewElement<'_>],
        were_packed: bool,
    ) -> Result<u64, OpError>;

    /// A copy of a large one in trees of its own, which takes those of long elements that have been made.
    ///
    /// # Errors
    /// [`OpError`]; nothing has been made.
    fn copy(&self, op: &mut Op<'_>, from: &Grown, made: Made<'_>) -> Result<Grown, OpError>;

    /// About how many pages the trees of a large one have, as one of their leaves lets expect.
    ///
    /// # Errors
    /// [`OpError`].
    fn page_count(&self, keyspace: &Keyspace, grown: &Grown) -> Result<u64, OpError>;

    /// Checks the trees of a large one, each of which has all of its elements; how many these are.
    ///
    /// # Errors
    /// [`Stop::Damaged`] says what is wrong and where.
    fn check(&self, grown: &Grown, pages: &mut PageCheck<'_>) -> Result<u64, Stop>;

    /// Removes elements whose time is over from the collection of a key that the caller has locked. Whether there is more to do
    /// at once. A type whose elements have no deadlines has nothing to do.
    ///
    /// # Errors
    /// [`OpError`]; it is tried again later.
    fn expire(&self, _: &mut Op<'_>, _: (DbId, &Key<'_>)) -> Result<bool, OpError> {
        Ok(false)
    }
}

/// Pages of a tree with so many elements, of which a leaf has so many.
pub(super) fn pages_for(grown: &Grown, elements_a_leaf: u64) -> u64 {
    1 + grown.element_count.div_ceil(elements_a_leaf.max(1))
}
