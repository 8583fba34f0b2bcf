//! The C compiler lays out WiredTiger's tables of functions, so that nothing here has to repeat them.

fn main() {
    #[cfg(feature = "system")]
    {
        println!("cargo::rerun-if-changed=src/shim.c");
        cc::Build::new().file("src/shim.c").warnings(true).compile("stillframe_wiredtiger_shim");
        println!("cargo::rustc-link-lib=wiredtiger");
    }
}
