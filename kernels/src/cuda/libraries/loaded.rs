//! Opens a library by its path and looks up its functions.

use std::ffi::OsStr;

use libloading::Library;

/// Declares a struct of a library's functions and their lookup.
macro_rules! functions {
    ($($name:ident: $symbol:literal, ($($argument:ty),*) -> $answer:ty;)*) => {
        #[derive(Clone, Copy, Debug)]
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) -> $answer,)*
        }

        impl Functions {
            /// # Safety
            /// The library's symbols of these names must be functions of these types.
            unsafe fn of(library: &libloading::Library) -> Result<Self, libloading::Error> {
                // SAFETY: as the caller promises.
                unsafe { Ok(Self { $($name: *library.get($symbol)?,)* }) }
            }
        }
    };
}

pub(in crate::cuda) use functions;

/// Opens a library and looks up its functions. The library is never unloaded.
///
/// # Errors
/// The loader's message: the file does not exist, is not a library for this machine, or lacks a function.
pub(in crate::cuda) fn open<T>(
    path: &OsStr,
    find: impl FnOnce(&Library) -> Result<T, libloading::Error>,
) -> Result<T, String> {
    let load_error = |error: libloading::Error| {
        let source = std::error::Error::source(&error).map(ToString::to_string);
        let text = source.unwrap_or_else(|| error.to_string());
        // The caller's message already names the library.
        text.strip_prefix(&format!("{}: ", path.display())).map(str::to_owned).unwrap_or(text)
    };
    // SAFETY: the user names the library, or it has the name and location of NVIDIA's. NVIDIA is responsible for the
    // library's initialization code.
    let library = unsafe { Library::new(path) }.map_err(load_error)?;
    let found = find(&library).map_err(load_error)?;
    // Leaked, so that the functions stay valid.
    Box::leak(Box::new(library));
    Ok(found)
}
