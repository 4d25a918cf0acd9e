//! Link arguments that make the shared library *be* libibverbs.so.1 and librdmacm.so.1.

fn main() {
    println!("cargo:rerun-if-changed=abi.map");
    let map = concat!(env!("CARGO_MANIFEST_DIR"), "/abi.map");
    // Symbols get their versions in the assembly of `export.rs`; this defines the versions.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={map}");
    // A preloaded file then already satisfies what programs ask for.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
    // Threads run in here: `dlclose` must not unmap them.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
