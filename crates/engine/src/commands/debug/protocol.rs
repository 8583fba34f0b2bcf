//! `DEBUG PROTOCOL`: a reply of each kind, for tests of clients.

use crate::command::CmdResult;
use crate::dispatch::ctx::Ctx;

/// What Redis answers; no constant of mathematics.
#[allow(clippy::approx_constant)]
const DOUBLE: f64 = 3.141;

const BIG_NUMBER: &str = "1234567999999999999999999999999999999";
const WRONG_NAME: &str = "ERR Wrong protocol type name. Please use one of the following: \
                          string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false";

pub fn reply_of_kind(ctx: &mut Ctx<'_>, kind: &[u8]) -> CmdResult {
    let reply = &mut ctx.reply;
    match kind.to_ascii_lowercase().as_slice() {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.int(12345),
        b"double" => reply.double(DOUBLE),
        b"bignum" => reply.big_number(BIG_NUMBER),
        b"null" => reply.null(),
        b"array" => {
            reply.array(3);
            (0..3).for_each(|number| reply.int(number));
        }
        b"set" => {
            reply.set(3);
            (0..3).for_each(|number| reply.int(number));
        }
        b"map" => {
            reply.map(3);
            for number in 0..3 {
                reply.int(number);
                reply.boolean(number == 1);
            }
        }
        b"attrib" => {
            // An older client would take it for the reply.
            if reply.resp3 {
                reply.attribute(1);
                reply.bulk(b"key-popularity");
                reply.array(2);
                reply.bulk(b"key:123");
                reply.int(90);
            }
            reply.bulk(b"Some real reply following the attribute");
        }
        b"push" => {
            if !reply.resp3 {
                return Err("ERR RESP2 is not supported by this command".into());
            }
            reply.push_beside(2);
            reply.bulk(b"server-cpu-usage");
            reply.int(42);
            reply.bulk(b"Some real reply following the push reply");
        }
        b"verbatim" => reply.verbatim(b"This is a verbatim\nstring"),
        b"true" => reply.boolean(true),
        b"false" => reply.boolean(false),
        _ => return Err(WRONG_NAME.into()),
    }
    Ok(())
}
