//! Finds the dynamic libraries that stand in for the driver's and the machine's in tests.

use std::{env, io, path::PathBuf};

/// The dynamic library of a crate, beside the executable of a test that names the crate under `[dev-dependencies]`.
///
/// # Errors
/// The library is missing, for example because the executable was moved.
pub fn built_library(crate_name: &str) -> io::Result<PathBuf> {
    let name = format!("{}{crate_name}{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let executable = env::current_exe()?;
    // Tests are in `deps`, programs in the folder above.
    let folders = executable.ancestors().skip(1).take(2).flat_map(|folder| [folder.to_owned(), folder.join("deps")]);
    let mut paths = folders.map(|folder| folder.join(&name));
    paths
        .find(|path| path.is_file())
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("cannot find {name} beside this test")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_library_names_the_missing_file() {
        let error = built_library("no_such_crate").expect_err("no crate has that name");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("no_such_crate"), "{error}");
    }
}
