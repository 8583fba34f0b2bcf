//! A field whose new value depends on its old one, as a counter's does.

use super::field::FieldMode;
use super::packed::Fields;
use super::read::is_live;
use super::write::FieldWrite;
use crate::blobs::{Bytes, Given, Taking};
use crate::keyspace::{CollectionKey, Keyspace, Local, Opened};
use crate::tree::hash::Grown;
use crate::{Deadline, OpError};

fn one<'a>(pair: &'a [(Bytes<'a>, Bytes<'a>)]) -> FieldWrite<'a> {
    FieldWrite { pairs: pair, mode: FieldMode::All, deadline: Deadline::Keep }
}

impl Keyspace {
    pub(super) fn hash_renew<T: AsRef<[u8]>, E>(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        field: &[u8],
        mut renew: impl FnMut(Option<&[u8]>) -> Result<T, E>,
        run: &mut Vec<u8>,
    ) -> Result<Result<(), E>, OpError> {
        let _lock = self.locks.lock_key(&local.holder, at.db, at.key.hash);
        let opened = self.open_to_change(local, at, run)?;
        if let Some((opened, grown)) = opened.as_ref().and_then(|opened| Some((opened, opened.grown?))) {
            return self.hash_renew_grown(local, at, opened, grown, field, renew);
        }
        let is_timed = opened.as_ref().is_some_and(|opened| opened.earliest.is_some());
        let packed = Fields { run, is_timed };
        let value = match renew(packed.find_live(field, local.now).map(|pair| pair.value)) {
            Ok(value) => value,
            Err(refused) => return Ok(Err(refused)),
        };
        self.hash_set_packed(
            local,
            at,
            opened.as_ref(),
            &one(&[(field.into(), value.as_ref().into())]),
            run,
        )?;
        Ok(Ok(()))
    }

    fn hash_renew_grown<T: AsRef<[u8]>, E>(
        &self,
        local: &mut Local,
        at: &CollectionKey<'_>,
        opened: &Opened,
        grown: Grown,
        field: &[u8],
        mut renew: impl FnMut(Option<&[u8]>) -> Result<T, E>,
    ) -> Result<Result<(), E>, OpError> {
        // Nothing that is missing is met after the first change (C1).
        self.resolve_elements(local, grown.first, &[field.into()])?;
        self.resolve_stored([field.len()].into_iter())?;
        let (element, mut refused) = (self.hashed_ahead(local, field), None);
        let renewed = self.renew_element(local, grown.first, &element, |old| {
            renew(Some(old)).map_err(|error| refused = Some(error)).ok()
        })?;
        if let Some(refused) = refused {
            return Ok(Err(refused));
        }
        if let Some(value) = renewed {
            let pair = [(field.into(), value.as_ref().into())];
            return self.hash_note_renewed(local, at, opened, grown, &one(&pair)).map(Ok);
        }
        let (now, mut made) = (local.now, None);
        self.element(grown.first, &element, |record| {
            if is_live(record, now) {
                let give = |value: Given<'_>| made = Some(renew(Some(value.held())));
                self.give_element_value(record, Taking::Bytes, &mut local.bytes, give)?;
            }
            Ok(())
        })?;
        let value = match made.unwrap_or_else(|| renew(None)) {
            Ok(value) => value,
            Err(refused) => return Ok(Err(refused)),
        };
        self.hash_set_grown(local, at, opened, grown, &one(&[(field.into(), value.as_ref().into())]))?;
        Ok(Ok(()))
    }
}
