//! `headroom token`: manages access tokens, with or without a running agent.

use std::{ffi::OsString, path::PathBuf};

use headroom_protocol::Scope;
use serde::Serialize;
use thiserror::Error;

use super::{
    Exit,
    args::{Flag, InDataFolder, InvalidValue, ParsedArgs, UsageError, Word, parse, refusal, shown},
    command::{Command, Words},
    pairing::{self, Invitation},
    print,
};
use headroom_agent_core::{clock::now_ms, folders};
use headroom_server::access::{error::FileError, file::AccessFile, token_file::TokenFile};

/// Version of the JSON schema.
const SCHEMA: u32 = 1;
/// Address of the page if no agent has been started yet.
const DEFAULT_LINK: &str = "http://127.0.0.1:8420/";
const HOUR_MS: u64 = 60 * 60 * 1000;
/// Resolution of a token's last use.
const COARSE_MS: u64 = 10 * 60 * 1000;

/// Why the command failed.
#[derive(Debug, Error)]
pub enum Error {
    /// The data directory is unavailable.
    #[error(transparent)]
    Folder(#[from] folders::Error),
    /// The tokens cannot be read or changed.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Error {
    /// Suggested remedy.
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

const SCOPE: Flag<Request> = Flag {
    name: "scope",
    value: Some("view|control"),
    doc: "view: read only; control: also start, change and delete\n[default: view]",
    set: |request, text| {
        request.scope = Some(match text {
            "view" => Scope::View,
            "control" => Scope::Control,
            _ => return Err(InvalidValue::not_one_of(text, &["view", "control"])),
        });
        Ok(())
    },
};
const JSON: Flag<Request> = Flag {
    name: "json",
    value: None,
    doc: "Print the list as JSON, schema 1",
    set: |request, _| {
        request.json = true;
        Ok(())
    },
};

const GIVING_FLAGS: &[Flag<Request>] = &[SCOPE, Flag::DATA_DIR];
const LIST_FLAGS: &[Flag<Request>] = &[JSON, Flag::DATA_DIR];
const REVOKE_FLAGS: &[Flag<Request>] = &[Flag::DATA_DIR];

/// The command, for help, completions and the manual.
pub const COMMAND: Command = Command {
    name: "token",
    summary: "Manage access tokens",
    about: "\
Manages access tokens. A running `headroom serve` applies changes within a second.",
    usage: &["headroom token COMMAND"],
    subcommands: &[&ADD, &LIST, &REVOKE, &PAIR],
    exits: EXITS,
    examples: &["headroom token pair", "headroom token add prometheus > headroom.token"],
    run: |args| COMMAND.dispatch(args, None),
    ..Command::EMPTY
};

const EXITS: &[(u8, &str)] = &[(0, "done"), (1, "there is no such name, or it is taken")];

const ADD: Command = Command {
    name: "token add",
    summary: "Print a new token, for a script or for Prometheus",
    about: "\
Prints a new token for a script or for Prometheus. It cannot be shown again, because only
its hash is stored.",
    usage: &["headroom token add NAME [--scope view|control]"],
    options: || shown(GIVING_FLAGS),
    words: Words::Name,
    exits: EXITS,
    examples: &["headroom token add prometheus > headroom.token"],
    run: |args| run(&ADD, GIVING_FLAGS, args, |words| named(&ADD, words).map(TokenAction::Add)),
    ..Command::EMPTY
};

const LIST: Command = Command {
    name: "token list",
    summary: "List the tokens",
    about: "\
Lists the tokens. The time of last use is stored every ten minutes at most.",
    usage: &["headroom token list [--json]"],
    options: || shown(LIST_FLAGS),
    exits: &[(0, "the tokens are listed"), (1, "their file is damaged or held by another program")],
    examples: &["headroom token list --json"],
    run: |args| run(&LIST, LIST_FLAGS, args, |words| alone(&LIST, words).map(|()| TokenAction::List)),
    ..Command::EMPTY
};

const REVOKE: Command = Command {
    name: "token revoke",
    summary: "Revoke a token",
    about: "Revokes a token. A running `headroom serve` closes its connections within two seconds.",
    usage: &["headroom token revoke NAME"],
    options: || shown(REVOKE_FLAGS),
    words: Words::Name,
    exits: EXITS,
    examples: &["headroom token revoke prometheus"],
    run: |args| run(&REVOKE, REVOKE_FLAGS, args, |words| named(&REVOKE, words).map(TokenAction::Revoke)),
    ..Command::EMPTY
};

const PAIR: Command = Command {
    name: "token pair",
    summary: "Print a link that pairs one browser",
    about: "\
Prints a link that pairs one browser within ten minutes. If the server is reachable from
other devices, it also prints a QR code.",
    usage: &["headroom token pair [--scope view|control]"],
    options: || shown(GIVING_FLAGS),
    exits: &[(0, "the link is printed"), (1, "the tokens' file is damaged or held by another program")],
    examples: &["headroom token pair --scope control"],
    run: |args| run(&PAIR, GIVING_FLAGS, args, |words| alone(&PAIR, words).map(|()| TokenAction::Pair)),
    ..Command::EMPTY
};

/// Runs a subcommand. `what` converts its arguments to an action.
fn run(
    command: &Command,
    flags: &[Flag<Request>],
    args: Vec<OsString>,
    what: fn(&[String]) -> Result<TokenAction<'_>, UsageError>,
) -> Result<Exit, super::Error> {
    let mut request = Request::default();
    let take = |request: &mut Request, word: Word| match word {
        Word::Plain(word) => {
            request.words.push(word.into_string().map_err(UsageError::NotUnicode)?);
            Ok(())
        }
        other => Err(refusal(command.name, flags, other)),
    };
    if parse(command.name, flags, args, &mut request, take)? == ParsedArgs::Help {
        return command.print_help();
    }
    let what = what(&request.words)?;
    let folder = folders::data(request.data_dir.as_deref()).map_err(Error::from)?;
    let file = AccessFile::of(&folder);
    let (data, note) = what.done(&file, &request).map_err(Error::from)?;
    if let Err(error) = print::data(&data) {
        if let TokenAction::Add(name) = what {
            // A token that was not printed cannot be used.
            file.change(|book| book.revoke(name)).map_err(Error::from)?;
        }
        return Err(error.into());
    }
    print::note(&note);
    Ok(Exit::Success)
}

/// The argument of a subcommand that requires a name.
fn named<'a>(command: &Command, words: &'a [String]) -> Result<&'a str, UsageError> {
    match words {
        [] => Err(UsageError::Missing { command: command.name, what: "a NAME" }),
        [name] => Ok(name),
        [_, word, ..] => Err(UsageError::UnexpectedWord { command: command.name, word: word.clone() }),
    }
}

/// Rejects arguments of a subcommand that accepts none.
fn alone(command: &Command, words: &[String]) -> Result<(), UsageError> {
    match words.first() {
        None => Ok(()),
        Some(word) => Err(UsageError::UnexpectedWord { command: command.name, word: word.clone() }),
    }
}

/// Action of a subcommand.
enum TokenAction<'a> {
    Add(&'a str),
    List,
    Revoke(&'a str),
    Pair,
}

impl TokenAction<'_> {
    /// Performs the action. Returns the data to print and a note.
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
    /// `null` for never.
    last_used_ms: Option<u64>,
}

fn json(book: &TokenFile) -> String {
    let tokens = book.tokens.iter().map(|token| Row {
        name: &token.name,
        scope: token.scope,
        created_ms: token.created_ms,
        last_used_ms: Some(token.last_used_ms).filter(|ms| *ms > 0),
    });
    let document = Document { schema: SCHEMA, tokens: tokens.collect() };
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

fn table(book: &TokenFile, now_ms: u64) -> String {
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

/// Approximate time since `time_ms`.
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
