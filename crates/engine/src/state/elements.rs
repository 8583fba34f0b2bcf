//! Elements of a collection on their way into the store: gathered, and stored some hundred at a time. Long ones go to pages
//! before, part by part, so that memory need not hold them.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::{ControlFlow, Range};

use stillframe_store::rdb::{
    CollectionKind, Parts, PayloadElements, PayloadError, PayloadWriter, SmallLimits, Tally, WriteError,
};
use stillframe_store::{
    Bytes, DbId, Element, Encoding, Incoming, Key, NewElement, OpError, UnixMillis, Worker,
};

/// So many elements, or bytes of them, are stored together.
const BATCH_ELEMENTS: usize = 256;
const BATCH_BYTES: usize = 256 << 10;

/// What is longer goes to pages before it is stored, so much at a time.
const PLACED_MIN_BYTES: usize = 256 << 10;
const PLACED_STEP_BYTES: usize = 256 << 10;

/// Elements of one collection that are not stored yet.
#[derive(Debug)]
pub struct Batch {
    kind: CollectionKind,
    bytes: Vec<u8>,
    elements: Vec<Gathered>,
    /// They lie in a listpack or the like, which Redis takes over as it is.
    were_packed: bool,
    /// Long ones that go to pages, in their order; all but the last are there.
    placed: Vec<Placed>,
    /// The next element that may have something long.
    next: usize,
}

/// A long part of an element that goes to pages.
#[derive(Debug)]
struct Placed {
    element: usize,
    is_value: bool,
    incoming: Incoming,
}

/// An element by its places in the bytes.
#[derive(Debug)]
struct Gathered {
    first: Range<usize>,
    /// The value of a field.
    value: Range<usize>,
    score: f64,
    deadline: Option<UnixMillis>,
}

impl Batch {
    pub fn new(kind: CollectionKind) -> Batch {
        let (bytes, elements, placed) = (Vec::new(), Vec::new(), Vec::new());
        Batch { kind, bytes, elements, were_packed: false, placed, next: 0 }
    }

    /// All elements of the collection at a key, if there is one.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn of_key(worker: &mut Worker, db: DbId, key: &Key<'_>) -> Result<Option<Batch>, OpError> {
        let batch = RefCell::new(None);
        // An operation that begins anew gives all elements again.
        let begin = |kind, _| drop(batch.replace(Some(Batch::new(kind))));
        worker.collection_at(db, key).for_each(begin, |element| {
            batch.borrow_mut().iter_mut().for_each(|batch: &mut Batch| batch.push(element));
            ControlFlow::Continue(())
        })?;
        Ok(batch.into_inner())
    }

    /// Whether they lie in a listpack or the like, in which a score may be the negative zero.
    pub fn come_from(&mut self, is_packed: bool) {
        self.were_packed = is_packed;
    }

    /// All elements of a payload.
    ///
    /// # Errors
    /// It is damaged, or an element comes twice.
    pub fn of_payload(mut payload: PayloadElements<'_>) -> Result<Batch, PayloadError> {
        let mut batch = Batch::new(payload.kind());
        batch.come_from(payload.is_packed());
        while let Some(element) = payload.element()? {
            batch.push(element);
        }
        let mut seen = HashSet::with_capacity(batch.len());
        let mut firsts = batch.elements.iter().map(|element| &batch.bytes[element.first.clone()]);
        match !batch.kind.has_names() || firsts.all(|first| seen.insert(first)) {
            true => Ok(batch),
            false => Err(PayloadError::BadData),
        }
    }

    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// Of all that may lie outside of a leaf: elements, and the values of fields.
    pub fn lens_bytes(&self) -> impl Iterator<Item = usize> + '_ {
        self.elements.iter().flat_map(|element| [element.first.len(), element.value.len()])
    }

    fn element(&self, element: &Gathered) -> Element<'_> {
        let Gathered { first, value, score, deadline } = element;
        let (name, value) = (&self.bytes[first.clone()], &self.bytes[value.clone()]);
        self.kind.element(Parts { name, value, score: *score, deadline: *deadline })
    }

    /// What `DUMP` gives for a collection of these elements: in the newer form if fields have deadlines.
    ///
    /// # Errors
    /// There are none, or too many.
    pub fn payload(
        &self,
        encoding: Encoding,
        limits: &SmallLimits,
        compresses: bool,
    ) -> Result<Vec<u8>, WriteError> {
        let mut tally = Tally::new(self.kind, encoding.is_small(), limits);
        self.elements.iter().for_each(|element| tally.add(&self.element(element)));
        let (announced, version) = (tally.announced(), tally.announced().oldest_version());
        let mut writer = PayloadWriter::begin(Vec::new(), announced, compresses, version, *limits)?;
        self.elements.iter().try_for_each(|element| writer.element(self.element(element)))?;
        writer.finish()
    }

    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.elements.len() >= BATCH_ELEMENTS || self.bytes.len() >= BATCH_BYTES
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    pub fn push(&mut self, element: Element<'_>) {
        let Parts { name, value, score, deadline } = element.parts();
        let (first, value) = (self.keep(name), self.keep(value));
        self.elements.push(Gathered { first, value, score, deadline });
    }

    /// The bytes of a part of an element that have been gathered.
    fn part(&self, element: usize, is_value: bool) -> &[u8] {
        let place =
            self.elements.get(element).map(|found| if is_value { &found.value } else { &found.first });
        place.map_or(&[], |place| &self.bytes[place.clone()])
    }

    /// Puts the next part of what is long into its pages. Returns whether that was the last. To be called until then before
    /// [`Batch::store`], where memory is bounded.
    ///
    /// # Errors
    /// [`OpError::Fault`]: there is no room yet. Others: it cannot be had.
    pub fn place(&mut self, worker: &mut Worker) -> Result<bool, OpError> {
        if self.placed.last().is_some_and(|last| !last.incoming.is_complete()) {
            return self.place_more().map(|()| false);
        }
        while self.next < 2 * self.elements.len() {
            let (element, is_value) = (self.next / 2, self.next % 2 == 1);
            self.next += 1;
            let len = self.part(element, is_value).len();
            if len < PLACED_MIN_BYTES {
                continue;
            }
            let is_name = !is_value && self.kind.has_names();
            let begun = match is_name {
                true => worker.begin_incoming_name(len as u64),
                false => worker.begin_incoming(len as u64),
            };
            match begun {
                Ok(incoming) => self.placed.push(Placed { element, is_value, incoming }),
                // Too many are on their way: it goes with the others.
                Err(OpError::OutOfMemory { .. }) => continue,
                Err(error) => return Err(error),
            }
            return Ok(false);
        }
        Ok(true)
    }

    /// Puts the next part of the last that is on its way into its pages.
    fn place_more(&mut self) -> Result<(), OpError> {
        let Some(mut last) = self.placed.pop() else { return Ok(()) };
        let placed = match last.incoming.awaited_room() {
            Some(fault) => Err(fault.into()),
            None => {
                let rest = &self.part(last.element, last.is_value)[last.incoming.filled_bytes() as usize..];
                last.incoming.append(&rest[..rest.len().min(PLACED_STEP_BYTES)]).map(drop)
            }
        };
        self.placed.push(last);
        placed
    }

    /// A part of an element, wherever it is.
    fn bytes_of(&self, element: usize, is_value: bool) -> Bytes<'_> {
        let is_it = |placed: &&Placed| placed.element == element && placed.is_value == is_value;
        match self.placed.iter().find(is_it) {
            Some(placed) if placed.incoming.is_complete() => Bytes::Incoming(&placed.incoming),
            _ => Bytes::Here(self.part(element, is_value)),
        }
    }

    /// Adds what has been gathered to the collection at a key, and forgets it. False if some of it was there before.
    ///
    /// # Errors
    /// [`OpError`]; it may be tried again after a fault.
    pub fn store(&mut self, worker: &mut Worker, db: DbId, key: &Key<'_>) -> Result<bool, OpError> {
        let elements: Vec<NewElement<'_>> = (0..)
            .zip(&self.elements)
            .map(|(index, &Gathered { score, deadline, .. })| {
                let (name, value) = (self.bytes_of(index, false), self.bytes_of(index, true));
                NewElement { name, value, score, deadline }
            })
            .collect();
        let added = worker.collection_at(db, key).put(self.kind, &elements, self.were_packed)?;
        let are_new = added == self.elements.len() as u64;
        self.elements.clear();
        self.bytes.clear();
        self.placed.clear();
        self.next = 0;
        Ok(are_new)
    }
}
