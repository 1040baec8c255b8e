//! Files and directories dropped onto the page. Subdirectories are not searched.

use headroom_protocol::demo::files::Role;
use js_sys::{Array, Function, Promise};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{
    DataTransfer, File, FileSystemDirectoryEntry, FileSystemDirectoryReader, FileSystemEntry, FileSystemFileEntry,
};

/// Maximum number of directory entries that are read. A model's directory has about twenty; a download directory can
/// have any number.
const FOLDER_ENTRIES_MAX: usize = 1000;

/// The content of a drop event.
#[derive(Debug, Default)]
pub struct DropContent {
    /// Files dropped directly.
    pub files: Vec<File>,
    /// Dropped directories, not yet read.
    folders: Vec<FileSystemDirectoryEntry>,
}

impl DropContent {
    /// Reads the content of a drop event. Must be called while the event is handled; afterwards the data is empty.
    pub fn of(data: &DataTransfer) -> Self {
        let items = data.items();
        let mut dropped = Self::default();
        for item in (0..items.length()).filter_map(|index| items.get(index)) {
            match item.webkit_get_as_entry() {
                Ok(Some(entry)) if entry.is_directory() => dropped.folders.push(entry.unchecked_into()),
                _ => dropped.files.extend(item.get_as_file().ok().flatten()),
            }
        }
        dropped
    }

    /// Reports whether nothing was dropped, not even an empty directory.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.folders.is_empty()
    }

    /// Returns the dropped files and the model files in the dropped directories.
    pub async fn all(self) -> Vec<File> {
        let mut files = self.files;
        for folder in self.folders {
            files.extend(files_of(&folder.create_reader()).await);
        }
        files
    }
}

async fn files_of(reader: &FileSystemDirectoryReader) -> Vec<File> {
    let mut files = Vec::new();
    let mut n_entries = 0;
    while n_entries < FOLDER_ENTRIES_MAX {
        let batch =
            called_back(|done, failed| drop(reader.read_entries_with_callback_and_callback(done, failed))).await;
        let batch: Array = batch.map(JsCast::unchecked_into).unwrap_or_default();
        // Browsers return about a hundred entries at a time, and an empty batch at the end.
        if batch.length() == 0 {
            break;
        }
        n_entries += batch.length() as usize;
        for entry in batch.iter() {
            let entry: FileSystemEntry = entry.unchecked_into();
            if entry.is_file() && Role::of(&entry.name()) != Role::Beside {
                let entry: FileSystemFileEntry = entry.unchecked_into();
                let file = called_back(|done, failed| entry.file_with_callback_and_callback(done, failed)).await;
                files.extend(file.map(JsCast::unchecked_into::<File>));
            }
        }
    }
    files
}

/// Awaits the success callback of a function. Returns `None` if the function calls the error callback.
async fn called_back(function: impl Fn(&Function, &Function)) -> Option<JsValue> {
    JsFuture::from(Promise::new(&mut |done, failed| function(&done, &failed))).await.ok()
}
