//! Tests of `headroom data prepare` with the real binary and the files that it writes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use insta::assert_snapshot;
use serde_json::Value;

/// A new directory below the system's temporary one, in which the binary runs.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("headroom-data-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn put(&self, file: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.0.join(file), bytes).expect("a file");
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command =
            Command::new(std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into()));
        command.args(["data", "prepare"]).args(args).current_dir(&self.0).stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("headroom runs")
    }

    /// Returns both streams and the exit status, for a snapshot.
    fn shown(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let status = output.status.code().expect("no signal");
        format!("{}--- stderr\n{}--- exit {status}\n", text(&output.stdout), text(&output.stderr))
    }

    #[track_caller]
    fn succeeds(&self, args: &[&str]) -> Output {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}\n{}", text(&output.stderr));
        output
    }

    /// Runs a command that must fail with this status and an empty standard output. Returns standard error.
    #[track_caller]
    fn fails(&self, args: &[&str], status: i32) -> String {
        let output = self.run(args);
        assert_eq!(
            (output.status.code(), text(&output.stdout)),
            (Some(status), ""),
            "{args:?}\n{}",
            text(&output.stderr)
        );
        text(&output.stderr).to_owned()
    }

    fn tokens(&self, file: &str) -> Vec<u16> {
        let bytes = fs::read(self.0.join(file)).expect("a file");
        assert_eq!(bytes.len() % 2, 0, "{file}");
        bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect()
    }

    /// Returns the sorted file names of a directory.
    fn names(&self, folder: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.0.join(folder)) else { return vec![] };
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// 20 characters in Python's text mode, 10 of them distinct.
const HELLO: &str = "hello world\nhello!\r\n\n";

#[test]
fn characters_are_written_as_nanogpt_writes_them() {
    let folder = Temporary::new("char");
    folder.put("input.txt", HELLO);
    assert_snapshot!("data_char", folder.shown(&["input.txt", "--out", "data/hello"]));
    assert_eq!(folder.names("data/hello"), ["meta.pkl", "train.bin", "val.bin"]);
    // The IDs of "\n", " ", "!", "d", "e", "h", "l", "o", "r" and "w" are 0 to 9. `\r\n` is one "\n", as in Python's
    // text mode.
    assert_eq!(folder.tokens("data/hello/train.bin"), [5, 4, 6, 6, 7, 1, 9, 7, 8, 6, 3, 0, 5, 4, 6, 6, 7, 2]);
    assert_eq!(folder.tokens("data/hello/val.bin"), [0, 0]);
    // Python's pickle.load gives {'vocab_size': 10, 'itos': {0: '\n', …}, 'stoi': {'\n': 0, …}}.
    let meta = fs::read(folder.0.join("data/hello/meta.pkl")).expect("a file");
    assert!(meta.starts_with(b"\x80\x02}(X\x0a\0\0\0vocab_sizeK\x0aX\x04\0\0\0itos}(K\0X\x01\0\0\0\n"), "{meta:?}");
}

#[test]
fn gpt2_tokens_have_no_meta() {
    let folder = Temporary::new("gpt2");
    folder.put("input.txt", "Hello, world! ".repeat(10) + "<|endoftext|>");
    assert_snapshot!("data_gpt2", folder.shown(&["input.txt", "--tokenizer=gpt2", "--out=hello"]));
    assert_eq!(folder.names("hello"), ["train.bin", "val.bin"]);
    let (train, val) = (folder.tokens("hello/train.bin"), folder.tokens("hello/val.bin"));
    assert_eq!(train[..6], [15496, 11, 995, 0, 18435, 11]);
    assert!(!val.contains(&50256), "the text is ordinary: {val:?}");
}

/// The first run needs neither a file nor the network.
#[test]
fn the_corpus_comes_with_the_program() {
    let folder = Temporary::new("builtin");
    let output = folder.succeeds(&["builtin", "--out", "data/stories", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let names: Vec<&str> = json.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(names, ["folder", "meta", "outcome", "schema", "tokenizer", "train", "val", "vocab_size"]);
    assert_eq!((&json["schema"], &json["tokenizer"], &json["outcome"]), (&1.into(), &"char".into(), &"written".into()));
    assert_eq!(json["folder"], "data/stories");
    let (train, val) = (folder.tokens("data/stories/train.bin"), folder.tokens("data/stories/val.bin"));
    assert_eq!((&json["train"]["tokens"], &json["val"]["tokens"]), (&train.len().into(), &val.len().into()));
    let (n_train, n_all) = (train.len(), train.len() + val.len());
    assert_eq!(n_train, n_all * 9 / 10);
    assert!((4_000_000..4_004_096).contains(&n_all), "{n_all}");
    let vocab_size = json["vocab_size"].as_u64().expect("a number");
    assert!((60..=76).contains(&vocab_size), "{vocab_size}");
    assert!(train.iter().chain(&val).all(|id| u64::from(*id) < vocab_size));
}

#[test]
fn another_data_set_is_not_overwritten_unasked() {
    let folder = Temporary::new("force");
    folder.put("a.txt", HELLO);
    folder.put("b.txt", HELLO.replace('w', "W"));
    folder.succeeds(&["a.txt", "--out=data"]);
    let first = fs::read(folder.0.join("data/train.bin")).expect("a file");
    // Preparing the same data again succeeds and writes nothing.
    let again = folder.succeeds(&["a.txt", "--out=data"]);
    assert!(text(&again.stderr).starts_with("this data set is there already; nothing was written\n"));
    assert_snapshot!("data_exists", folder.shown(&["b.txt", "--out=data"]));
    for other in [&["a.txt", "--out=data", "--tokenizer=gpt2"], &["b.txt", "--out=data", "--json"]] {
        folder.fails(other, 1);
    }
    assert_eq!(fs::read(folder.0.join("data/train.bin")).expect("a file"), first);
    let forced = folder.succeeds(&["b.txt", "--out=data", "--force"]);
    assert!(text(&forced.stderr).starts_with("the data set that was there is replaced\n"));
    assert_ne!(fs::read(folder.0.join("data/train.bin")).expect("a file"), first);
    // A `meta.pkl` of characters beside GPT-2's tokens would change their meaning.
    folder.put("c.txt", HELLO.repeat(9));
    folder.succeeds(&["c.txt", "--out=data", "--force", "--tokenizer=gpt2"]);
    assert_eq!(folder.names("data"), ["train.bin", "val.bin"]);
    // Half of a data set is a different data set, too.
    fs::remove_file(folder.0.join("data/train.bin")).expect("it was there");
    let said = folder.fails(&["c.txt", "--out=data", "--tokenizer=gpt2"], 1);
    assert!(said.starts_with("headroom: data/val.bin is of another data set"), "{said}");
}

#[test]
fn failed_preparation_reports_cause_and_leaves_no_files() {
    let folder = Temporary::new("problems");
    folder.put("empty.txt", "");
    folder.put("short.txt", "hello wor");
    folder.put("latin.txt", b"caf\xE9 au lait\n");
    folder.put("utf16.txt", b"\xFF\xFEh\0i\0");
    let many: String = ('\0'..=char::MAX).filter(|char| !matches!(char, '\r' | '\u{feff}')).take(65_537).collect();
    folder.put("many.txt", many);
    fs::create_dir(folder.0.join("folder")).expect("a folder");
    let mut shown = String::new();
    for file in ["missing.txt", "folder", "empty.txt", "short.txt", "latin.txt", "utf16.txt", "many.txt"] {
        shown += &format!("$ {file}\n{}\n", folder.shown(&[file, "--out=out"]));
        assert_eq!(folder.names("out"), [""; 0], "{file}");
    }
    shown += &format!("$ --out=empty.txt\n{}\n", folder.shown(&["latin.txt", "--out=empty.txt"]));
    folder.put("good.txt", HELLO);
    let said = folder.fails(&["good.txt", "--out=empty.txt"], 3);
    assert!(said.contains("--out takes a folder, not a file"), "{said}");
    let most: String = ('\0'..=char::MAX).filter(|char| *char != '\r').take(65_536).collect();
    folder.put("most.txt", most);
    folder.succeeds(&["most.txt", "--out=most"]);
    assert_snapshot!("data_problems", shown);
}

/// Returns the command as a shell without job control starts it in the background: with SIGINT ignored. `limits` are
/// commands of the shell that run first.
#[cfg(unix)]
fn of_shell(folder: &Temporary, limits: &str, file: &str) -> Command {
    let command = folder.command(&[file, "--out=out"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("trap '' INT; {limits} exec \"$0\" \"$@\"")]).arg(command.get_program());
    shell.args(command.get_args()).current_dir(&folder.0).stdin(Stdio::null());
    shell
}

/// A device or a pipe can supply bytes without end, so the input is bounded, and with it the memory.
#[cfg(target_os = "linux")]
#[test]
fn endless_input_is_read_up_to_a_bound_in_bounded_memory() {
    // Addresses for twice the bound, which the buffer reaches when it grows, and for the program itself.
    let limits = format!("ulimit -v {};", 3 << 20);
    for (file, name) in [("/dev/zero", "/dev/zero"), ("-", "standard input")] {
        let folder = Temporary::new("endless");
        let mut writer = Command::new("yes").stdout(Stdio::piped()).spawn().expect("yes is there");
        let pipe = writer.stdout.take().expect("piped");
        let output = of_shell(&folder, &limits, file).stdin(pipe).output().expect("headroom runs");
        // The writer ends when nothing reads its pipe.
        writer.wait().expect("it ends");
        let expected = format!(
            "headroom: cannot read {name}: a pipe or a device may give 1 GiB at most\n\n\
             hint: write it to a file first; a file may have any size\n"
        );
        assert_eq!((text(&output.stderr), output.status.code()), (&*expected, Some(1)), "{file}");
        assert_eq!(folder.names("out"), [""; 0], "{file}");
    }
}

#[cfg(unix)]
fn interrupt(child: &std::process::Child) {
    let asked = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill is there");
    assert!(asked.success());
}

/// A pipe with a slow writer is read until the writer closes it.
#[cfg(unix)]
#[test]
fn the_interrupt_key_ends_the_reading_of_a_pipe() {
    use std::os::unix::process::ExitStatusExt as _;

    let folder = Temporary::new("interrupt");
    let pipe = folder.0.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there").success());
    let mut child = of_shell(&folder, "", "pipe").spawn().expect("it starts");
    // Opening blocks until the program reads.
    let writer = fs::OpenOptions::new().write(true).open(&pipe).expect("a pipe");
    interrupt(&child);
    let status = child.wait().expect("it ends while the pipe is open");
    drop(writer);
    assert_eq!(status.signal(), Some(2), "{status}");
}

/// The signal ends the program before it has read all that it may.
#[cfg(unix)]
#[test]
fn the_interrupt_key_ends_the_reading_of_an_endless_pipe() {
    use std::{io::Write as _, os::unix::process::ExitStatusExt as _};

    let folder = Temporary::new("flood");
    let mut child = of_shell(&folder, "", "-").stdin(Stdio::piped()).spawn().expect("it starts");
    let mut pipe = child.stdin.take().expect("piped");
    // More than a pipe holds, so the program has read some of it.
    let block = [b'a'; 1 << 20];
    pipe.write_all(&block).expect("it is read");
    interrupt(&child);
    // Ends at the error of a pipe that nothing reads.
    let written = (1..).take_while(|_| pipe.write_all(&block).is_ok()).count();
    let status = child.wait().expect("it ends");
    assert_eq!(status.signal(), Some(2), "{status} after {written} MiB more");
}

#[test]
fn the_command_line_is_checked() {
    let folder = Temporary::new("usage");
    folder.put("a.txt", HELLO);
    for (args, said) in [
        (&["--out=x"][..], "data prepare needs FILE, or builtin"),
        (&["a.txt"], "data prepare needs --out FOLDER"),
        (&["a.txt", "b.txt", "--out=x"], "data prepare takes no \"b.txt\""),
        (&["a.txt", "--out=x", "--tokenizer=bpe"], "--tokenizer: \"bpe\" is not one of char, gpt2"),
        (&["a.txt", "--out="], "--out: a folder has a name"),
        (&["a.txt", "--outs=x"], "data prepare has no option --outs"),
    ] {
        let output = folder.run(args);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""), "{args:?}");
        assert!(text(&output.stderr).starts_with(&format!("headroom: {said}\n")), "{}", text(&output.stderr));
    }
    assert_eq!(folder.names(""), ["a.txt"]);
}

/// A pipe can be read only once.
#[cfg(unix)]
#[test]
fn a_text_may_come_through_a_pipe() {
    use std::io::Write;
    let folder = Temporary::new("pipe");
    for (name, out) in [("/dev/stdin", "data"), ("-", "other")] {
        let mut child = folder
            .command(&[name, &format!("--out={out}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("headroom runs");
        child.stdin.take().expect("a pipe").write_all(HELLO.as_bytes()).expect("it is read");
        assert!(child.wait().expect("it ends").success(), "{name}");
        assert_eq!(folder.tokens(&format!("{out}/train.bin")).len(), 18, "{name}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_nothing_half() {
    let folder = Temporary::new("full");
    folder.put("a.txt", HELLO.repeat(20_000));
    fs::create_dir(folder.0.join("data")).expect("a folder");
    // The temporary file is a device that is always full.
    std::os::unix::fs::symlink("/dev/full", folder.0.join("data/val.bin.part")).expect("a link");
    let said = folder.fails(&["a.txt", "--out=data"], 3);
    assert!(said.starts_with("headroom: cannot write data/val.bin: No space left on device"), "{said}");
    assert!(said.contains("\nhint: no incomplete file remains"), "{said}");
    assert_eq!(folder.names("data"), [""; 0]);
}

#[cfg(unix)]
#[test]
fn a_folder_that_may_not_be_written_is_said() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Temporary::new("denied");
    folder.put("a.txt", HELLO);
    let out = folder.0.join("data");
    fs::create_dir(&out).expect("a folder");
    fs::set_permissions(&out, fs::Permissions::from_mode(0o555)).expect("its own folder");
    // The administrator may write anywhere.
    let may_write = fs::write(out.join("probe"), "").is_ok();
    if !may_write {
        let said = folder.fails(&["a.txt", "--out=data"], 3);
        assert!(said.contains("Permission denied") && said.contains("a folder that you may write to"), "{said}");
    }
    fs::set_permissions(&out, fs::Permissions::from_mode(0o755)).expect("its own folder");
    if !may_write {
        assert_eq!(folder.names("data"), [""; 0]);
    }
}

#[cfg(unix)]
#[test]
fn two_at_once_do_not_mix() {
    let folder = Temporary::new("busy");
    folder.put("a.txt", HELLO);
    fs::create_dir(folder.0.join("data")).expect("a folder");
    let lock = fs::File::open(Path::new(&folder.0).join("data")).expect("a folder");
    lock.try_lock().expect("no other process holds the lock");
    let said = folder.fails(&["a.txt", "--out=data"], 1);
    assert_eq!(said, "headroom: data is being written by another headroom\n");
    drop(lock);
    folder.succeeds(&["a.txt", "--out=data"]);
}
