//! The command seam, without sockets.

use stillframe_engine::harness::Harness;

#[test]
fn lookup_errors_are_redis_texts() -> Result<(), Box<dyn std::error::Error>> {
    let mut h = Harness::new(&std::env::temp_dir())?;
    assert_eq!(h.run(&[b"get", b"missing"]), b"$-1\r\n");
    assert_eq!(h.run(&[b"GeT"]), b"-ERR wrong number of arguments for 'get' command\r\n");
    assert_eq!(
        h.run(&[b"nope", b"a\r\nb", b"c\0d"]),
        b"-ERR unknown command 'nope', with args beginning with: 'a  b' 'c' \r\n"
    );
    Ok(())
}
