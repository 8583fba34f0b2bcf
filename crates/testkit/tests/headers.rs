//! The headers that programs share with the modules, as C and C++ see them.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Compiles a program that includes the header, and uses the struct. `None` if there is no such compiler.
fn compiles(compiler: &str, flags: &[&str], header: &str, structure: &str) -> Option<(bool, String)> {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/include/uapi");
    let mut child = Command::new(compiler)
        .args(flags)
        .args(["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
        .arg(include)
        .arg("-")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let program =
        format!("#include <{header}>\nint main(void) {{ struct {structure} s; return sizeof(s) == 0; }}\n");
    child.stdin.take().expect("piped").write_all(program.as_bytes()).expect("the compiler reads");
    let output = child.wait_with_output().expect("the compiler ends");
    Some((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

#[test]
fn headers_are_c_and_cpp() {
    for (compiler, flags) in [("cc", ["-std=c11", "-xc"]), ("c++", ["-std=c++17", "-xc++"])] {
        for (header, structure) in [("exmap.h", "exmap_setup"), ("async_fork.h", "async_fork_control")] {
            match compiles(compiler, &flags, header, structure) {
                None => drop(writeln!(std::io::stderr(), "SKIPPED for headers: there is no {compiler}")),
                Some((is_good, errors)) => assert!(is_good, "{compiler}, {header}: {errors}"),
            }
        }
    }
}
