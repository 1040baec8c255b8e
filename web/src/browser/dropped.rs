//! What is dropped onto the page: files, and folders whose files are looked at. Folders in those are not.

use headroom_shared::demo::files::Role;
use js_sys::{Array, Function, Promise};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{
    DataTransfer, File, FileSystemDirectoryEntry, FileSystemDirectoryReader, FileSystemEntry, FileSystemFileEntry,
};

/// Entries of a folder that are looked at: a model's has twenty, and somebody's downloads end nowhere.
const FOLDER_ENTRIES_MAX: usize = 1000;

/// What was dropped.
#[derive(Debug, Default)]
pub struct Dropped {
    /// Files by themselves.
    pub files: Vec<File>,
    /// Folders, not looked into yet.
    folders: Vec<FileSystemDirectoryEntry>,
}

impl Dropped {
    /// To be called while the event lasts: it is empty behind.
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

    /// Whether there is nothing in it, not even an empty folder.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.folders.is_empty()
    }

    /// The files, and those of the folders that a model may need.
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
        // Browsers give a hundred at a time, and none at the end.
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

/// What a function calls back with; none where it calls the other.
async fn called_back(function: impl Fn(&Function, &Function)) -> Option<JsValue> {
    JsFuture::from(Promise::new(&mut |done, failed| function(&done, &failed))).await.ok()
}
