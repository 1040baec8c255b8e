//! Gives the library the name in itself by which the host looks for the driver first. A loader that has a library of that
//! name open gives it to whoever asks for it, so that on a machine with a real driver, too, a program which was told to
//! open this one by its path gets this one.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_CFG_TARGET_OS").is_some_and(|system| system == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    }
}
