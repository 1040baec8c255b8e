//! Sets the library's soname to the name by which the host searches for the driver first. A loader that has a library
//! of that name open returns it for later requests. A program that opens this library by its path therefore gets it
//! even on a machine with a real driver.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_CFG_TARGET_OS").is_some_and(|system| system == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    }
}
