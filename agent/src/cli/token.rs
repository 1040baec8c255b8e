//! `headroom token`: who is let in, beside an agent that runs or without one.

use std::{ffi::OsString, path::PathBuf};

use headroom_shared::protocol::Scope;
use serde::Serialize;
use thiserror::Error;

use super::{
    Exit,
    args::{Flag, InDataFolder, Parsed, Refusal, UsageError, Word, nearest, options_help, parse},
    pairing::{self, Invitation},
    print,
};
use crate::{
    clock::now_ms,
    folders,
    server::access::{
        book::Book,
        file::{AccessFile, FileError},
    },
};

/// The schema's number.
const SCHEMA: u32 = 1;
/// Where the page is where no agent ever started.
const DEFAULT_LINK: &str = "http://127.0.0.1:8420/";
const HOUR_MS: u64 = 60 * 60 * 1000;
/// As coarse as the time of a token's last use is kept.
const COARSE_MS: u64 = 10 * 60 * 1000;

/// Why tokens are as they were.
#[derive(Debug, Error)]
pub enum Error {
    /// There is no place for them.
    #[error(transparent)]
    Folder(#[from] folders::Error),
    /// They cannot be read or changed.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Error {
    /// What to try instead.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Folder(error) => Some(error.hint()),
            Self::File(error) => error.hint(),
        }
    }
}

#[derive(Debug, Default)]
struct Request {
    words: Vec<String>,
    scope: Option<Scope>,
    data_dir: Option<PathBuf>,
    json: bool,
}

impl InDataFolder for Request {
    fn set_data_folder(&mut self, folder: PathBuf) {
        self.data_dir = Some(folder);
    }
}

const FLAGS: &[Flag<Request>] = &[
    Flag {
        name: "scope",
        value: Some("SCOPE"),
        doc: "view: see everything; control: change and delete as well\n[default: view]",
        set: |request, text| {
            request.scope = Some(match text {
                "view" => Scope::View,
                "control" => Scope::Control,
                _ => return Err(Refusal { why: format!("{text:?} is neither view nor control"), meant: None }),
            });
            Ok(())
        },
    },
    Flag {
        name: "json",
        value: None,
        doc: "Print the list as JSON, schema 1",
        set: |request, _| {
            request.json = true;
            Ok(())
        },
    },
    Flag::DATA_DIR,
];

/// The help of this command.
pub fn help() -> String {
    format!(
        "\
Says who may watch this machine. An agent that runs notices within a second.

Usage: headroom token add NAME [--scope view|control]
       headroom token list [--json]
       headroom token revoke NAME
       headroom token pair [--scope view|control]

`add` prints a token, for a script or for Prometheus; it is shown this once, and only
its hash is kept. `pair` prints a link that gives a browser a token of its own, good
once and for ten minutes, and draws it for a phone's camera. When a token was last used
is kept to ten minutes: an agent does not write to the disk whenever a page asks.

Options:
{}",
        options_help(FLAGS)
    )
}

/// Runs the command.
///
/// # Errors
/// The words cannot be used, or tokens cannot be read or changed.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, super::Error> {
    let mut request = Request::default();
    if parse("token", FLAGS, args, &mut request, take)? == Parsed::Help {
        print::data(&help())?;
        return Ok(Exit::Success);
    }
    let words: Vec<&str> = request.words.iter().map(String::as_str).collect();
    let what = match words[..] {
        ["add", name] => What::Add(name),
        ["list"] => What::List,
        ["revoke", name] => What::Revoke(name),
        ["pair"] => What::Pair,
        ["add" | "revoke"] => return Err(UsageError::Missing { command: "token", what: "a NAME" }.into()),
        [] => return Err(UsageError::Missing { command: "token", what: "add, list, revoke or pair" }.into()),
        ["add" | "revoke", _, word, ..] | ["list" | "pair", word, ..] | [word, ..] => {
            return Err(UsageError::UnexpectedWord { command: "token", word: word.to_owned() }.into());
        }
    };
    let folder = folders::data(request.data_dir.as_deref()).map_err(Error::from)?;
    let file = AccessFile::of(&folder);
    let (data, note) = what.done(&file, &request).map_err(Error::from)?;
    print::data(&data)?;
    print::note(&note);
    Ok(Exit::Success)
}

fn take(request: &mut Request, word: Word) -> Result<(), UsageError> {
    match word {
        Word::Plain(word) => {
            request.words.push(word.into_string().map_err(UsageError::NotUnicode)?);
            Ok(())
        }
        Word::Other(option) => {
            Err(UsageError::UnknownOption { command: "token", near: nearest(FLAGS, &option), option })
        }
    }
}

/// What is to be done.
enum What<'a> {
    Add(&'a str),
    List,
    Revoke(&'a str),
    Pair,
}

impl What<'_> {
    /// Does it; what is printed as data and what beside it.
    fn done(&self, file: &AccessFile, request: &Request) -> Result<(String, String), FileError> {
        let scope = request.scope.unwrap_or(Scope::View);
        match *self {
            Self::Add(name) => {
                let token = file.change(|book| book.add(name, scope, now_ms()))?;
                let note = format!("a token that may {}, shown this once\n", may(scope));
                Ok((format!("{token}\n"), note))
            }
            Self::List => {
                let (book, _) = file.read()?;
                Ok((if request.json { json(&book) } else { table(&book, now_ms()) }, String::new()))
            }
            Self::Revoke(name) => {
                file.change(|book| book.revoke(name))?;
                Ok((String::new(), "revoked; an agent that runs sends its pages away within two seconds\n".to_owned()))
            }
            Self::Pair => {
                let (code, links) = file.change(|book| {
                    let code = book.new_code(scope, now_ms())?;
                    Ok::<_, FileError>((code, (book.link.clone(), book.far_link.clone())))
                })?;
                let link = links.0.as_deref().unwrap_or(DEFAULT_LINK);
                let invitation = Invitation { link, far_link: links.1.as_deref(), code: &code };
                let note = format!(
                    "lets one device in that may {}, once, within ten minutes\n{}",
                    may(scope),
                    invitation.for_phones(pairing::draws())
                );
                Ok((format!("{}\n", invitation.here()), note))
            }
        }
    }
}

const fn may(scope: Scope) -> &'static str {
    match scope {
        Scope::View => "see everything",
        Scope::Control => "see, change and delete everything",
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    tokens: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    scope: Scope,
    created_ms: u64,
    /// Null for never.
    last_used_ms: Option<u64>,
}

fn json(book: &Book) -> String {
    let tokens = book.tokens.iter().map(|token| Row {
        name: &token.name,
        scope: token.scope,
        created_ms: token.created_ms,
        last_used_ms: Some(token.last_used_ms).filter(|ms| *ms > 0),
    });
    let document = Document { schema: SCHEMA, tokens: tokens.collect() };
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

fn table(book: &Book, now_ms: u64) -> String {
    let rows = book.tokens.iter().map(|token| {
        let scope = match token.scope {
            Scope::View => "view",
            Scope::Control => "control",
        };
        [token.name.clone(), scope.to_owned(), ago(token.created_ms, now_ms), ago(token.last_used_ms, now_ms)]
    });
    let head = ["name", "scope", "created", "last used"].map(str::to_owned);
    let rows: Vec<[String; 4]> = std::iter::once(head).chain(rows).collect();
    let width = |i: usize| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    rows.iter().fold(String::new(), |text, row| {
        let cells = widths.iter().enumerate().map(|(i, width)| format!("{:width$}  ", row[i]));
        text + &cells.collect::<String>() + &row[3] + "\n"
    })
}

/// About how long since.
fn ago(time_ms: u64, now_ms: u64) -> String {
    let hours = now_ms.saturating_sub(time_ms) / HOUR_MS;
    match hours {
        _ if time_ms == 0 => "never".to_owned(),
        0 => match now_ms.saturating_sub(time_ms) / COARSE_MS {
            0 => "within 10 min".to_owned(),
            tens => format!("{tens}0 min ago"),
        },
        1..48 => format!("{hours} h ago"),
        _ => format!("{} days ago", hours / 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_said_about() {
        let now_ms = 100 * 24 * HOUR_MS;
        for (time_ms, text) in [
            (0, "never"),
            (now_ms, "within 10 min"),
            (now_ms + 1, "within 10 min"),
            (now_ms - 59 * 60_000, "50 min ago"),
            (now_ms - HOUR_MS, "1 h ago"),
            (now_ms - 47 * HOUR_MS, "47 h ago"),
            (now_ms - 48 * HOUR_MS, "2 days ago"),
        ] {
            assert_eq!(ago(time_ms, now_ms), text);
        }
    }
}
