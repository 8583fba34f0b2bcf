//! Elements of a collection on their way into the store: gathered, and stored some hundred at a time. Long ones go to pages
//! before, part by part, so that memory need not hold them.

use std::collections::HashSet;
use std::ops::Range;

use stillframe_store::rdb::{
    Announced, CollectionKind, Element, ListNodes, PayloadElements, PayloadError, PayloadWriter, SmallLimits,
    WriteError, WriteVersion,
};
use stillframe_store::{
    Bytes, DbId, Deadline, Encoding, End, FieldMode, Incoming, Key, NegativeZero, OpError, ScoreRule,
    UnixMillis, Worker,
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
    negative_zero: NegativeZero,
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
        let negative_zero = NegativeZero::AsLoaded;
        Batch { kind, bytes: Vec::new(), elements: Vec::new(), negative_zero, placed: Vec::new(), next: 0 }
    }

    /// Whether they lie in a listpack or the like, in which a score may be the negative zero.
    pub fn come_from(&mut self, is_packed: bool) {
        self.negative_zero = if is_packed { NegativeZero::Kept } else { NegativeZero::AsLoaded };
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
        match batch.kind == CollectionKind::List || firsts.all(|first| seen.insert(first)) {
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

    /// The fields of a hash.
    pub fn fields(&self) -> Vec<Vec<u8>> {
        self.elements.iter().map(|element| self.bytes[element.first.clone()].to_vec()).collect()
    }

    /// Gives the fields of a hash their deadlines, in the order in which they came.
    pub fn set_deadlines(&mut self, deadlines: Vec<Option<UnixMillis>>) {
        for (element, deadline) in self.elements.iter_mut().zip(deadlines) {
            element.deadline = deadline;
        }
    }

    fn element(&self, element: &Gathered) -> Element<'_> {
        let first = &self.bytes[element.first.clone()];
        match self.kind {
            CollectionKind::List => Element::Item(first),
            CollectionKind::Set => Element::Member(first),
            CollectionKind::SortedSet => Element::Scored { member: first, score: element.score },
            CollectionKind::Hash => {
                let deadline_ms = element.deadline.map(|at| u64::try_from(at).unwrap_or(0));
                Element::Field { field: first, value: &self.bytes[element.value.clone()], deadline_ms }
            }
        }
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
        let (count, is_small) =
            (self.elements.len() as u64, matches!(encoding, Encoding::ListPack | Encoding::IntSet));
        let least = self.elements.iter().filter_map(|element| element.deadline).min();
        let announced = match self.kind {
            CollectionKind::List => {
                let mut nodes = ListNodes::new(limits);
                self.elements.iter().for_each(|item| nodes.add(&self.bytes[item.first.clone()]));
                nodes.announced()
            }
            CollectionKind::Set => Announced::Set { member_count: count, is_small },
            CollectionKind::SortedSet => Announced::SortedSet { member_count: count, is_small },
            CollectionKind::Hash => {
                let least_deadline_ms = least.map(|at| u64::try_from(at).unwrap_or(0));
                Announced::Hash { field_count: count, is_small, least_deadline_ms }
            }
        };
        let version = if least.is_some() { WriteVersion::Redis7_4 } else { WriteVersion::Redis7_0 };
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
        let (first, value, score, deadline_ms) = match element {
            Element::Item(bytes) | Element::Member(bytes) => (bytes, &b""[..], 0.0, None),
            Element::Scored { member, score } => (member, &b""[..], score, None),
            Element::Field { field, value, deadline_ms } => (field, value, 0.0, deadline_ms),
        };
        let deadline = deadline_ms.map(|ms| UnixMillis::try_from(ms).unwrap_or(UnixMillis::MAX));
        let (first, value) = (self.keep(first), self.keep(value));
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
            let is_name = !is_value && self.kind != CollectionKind::List;
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
        let first = |element: usize| self.bytes_of(element, false);
        let all = 0..self.elements.len();
        let added = match self.kind {
            CollectionKind::Hash => self.store_fields(worker, db, key)?,
            CollectionKind::List => {
                let items: Vec<Bytes<'_>> = all.map(first).collect();
                worker.list_push(db, key, End::Right, &items, false)?;
                items.len() as u64
            }
            CollectionKind::Set => {
                let members: Vec<Bytes<'_>> = all.map(first).collect();
                worker.set_add(db, key, &members)?
            }
            CollectionKind::SortedSet => {
                let scored: Vec<(f64, Bytes<'_>)> =
                    all.map(|element| (self.elements[element].score, first(element))).collect();
                let rule = ScoreRule { negative_zero: self.negative_zero, ..ScoreRule::default() };
                worker.sorted_set_put(db, key, &scored, &rule)?.added
            }
        };
        let are_new = added == self.elements.len() as u64;
        self.elements.clear();
        self.bytes.clear();
        self.placed.clear();
        self.next = 0;
        Ok(are_new)
    }

    /// Stores fields, those with one deadline together; how many are new.
    fn store_fields(&self, worker: &mut Worker, db: DbId, key: &Key<'_>) -> Result<u64, OpError> {
        let (mut added, mut begin) = (0, 0);
        for same in self.elements.chunk_by(|a, b| a.deadline == b.deadline) {
            let pair = |element: usize| (self.bytes_of(element, false), self.bytes_of(element, true));
            let pairs: Vec<(Bytes<'_>, Bytes<'_>)> = (begin..begin + same.len()).map(pair).collect();
            begin += same.len();
            let deadline = same.first().and_then(|element| element.deadline);
            let deadline = deadline.map_or(Deadline::Clear, Deadline::At);
            added += worker.hash_set(db, key, &pairs, FieldMode::All, deadline)?;
        }
        Ok(added)
    }
}
