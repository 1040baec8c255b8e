//! Opens a library by its path and finds functions in it.

use std::ffi::OsStr;

use libloading::Library;

/// Declares a struct of a library's functions, and how they are found in it.
macro_rules! functions {
    ($($name:ident: $symbol:literal, ($($argument:ty),*) -> $answer:ty;)*) => {
        #[derive(Clone, Copy, Debug)]
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) -> $answer,)*
        }

        impl Functions {
            /// # Safety
            /// The library's symbols of these names are functions of these types.
            unsafe fn of(library: &libloading::Library) -> Result<Self, libloading::Error> {
                // SAFETY: as the caller promises.
                unsafe { Ok(Self { $($name: *library.get($symbol)?,)* }) }
            }
        }
    };
}

pub(in crate::cuda) use functions;

/// Opens a library and finds what is called of it. It stays loaded from then on.
///
/// # Errors
/// The loader's words: it is not there, it is no library of this machine, or a function is missing.
pub(in crate::cuda) fn open<T>(
    path: &OsStr,
    find: impl FnOnce(&Library) -> Result<T, libloading::Error>,
) -> Result<T, String> {
    let told = |error: libloading::Error| {
        let source = std::error::Error::source(&error).map(ToString::to_string);
        let text = source.unwrap_or_else(|| error.to_string());
        // Whoever tells it has named the library.
        text.strip_prefix(&format!("{}: ", path.display())).map(str::to_owned).unwrap_or(text)
    };
    // SAFETY: the person who starts the program names it, or it has the name and place of NVIDIA's; what a library does
    // when it is opened is its maker's.
    let library = unsafe { Library::new(path) }.map_err(told)?;
    let found = find(&library).map_err(told)?;
    // Leaked, so that what was found in it stays.
    Box::leak(Box::new(library));
    Ok(found)
}
