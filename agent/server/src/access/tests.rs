//! Tests of authentication, including changes of the file by another program.

use std::net::Ipv4Addr;

use super::*;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn access() -> (tempfile::TempDir, Access, AccessFile) {
    let folder = tempfile::tempdir().expect("a folder");
    let access = Access::open(folder.path()).expect("nothing is kept yet");
    let file = AccessFile::of(folder.path());
    (folder, access, file)
}

#[test]
fn a_token_is_known_by_its_hash() {
    let (_folder, access, file) = access();
    assert!(access.is_new());
    let token = file.change(|book| book.add("laptop", Scope::Control, 1)).expect("a token");
    access.look();
    assert!(!access.is_new());
    assert_eq!(access.judge(&token, HERE).expect("it is good").scope, Scope::Control);
    let kept: String = hash(&token).iter().map(|byte| format!("{byte:02x}")).collect();
    for bad in ["", "0", &token[1..], &token.to_uppercase(), &format!("{token} "), &kept] {
        assert!(matches!(access.judge(bad, HERE), Err(AccessError::BadToken)), "{bad}");
    }
}

#[test]
fn repeated_failures_are_reported_and_valid_token_still_works() {
    let (_folder, access, file) = access();
    let token = file.change(|book| book.add("laptop", Scope::View, 1)).expect("a token");
    access.look();
    let answers: Vec<bool> =
        (0..50).map(|_| matches!(access.judge("bad", HERE), Err(AccessError::TooManyFailures))).collect();
    assert!(!answers[0] && answers[49], "{answers:?}");
    access.judge(&token, HERE).expect("a proxy's address is shared by its clients");
}

#[test]
fn a_code_that_is_tried_often_is_not_looked_for() {
    let (_folder, access, _) = access();
    let code = access.new_code(Scope::View).expect("a code");
    for _ in 0..50 {
        access.pair("bad", "phone", HERE).expect_err("it is bad");
    }
    let last = access.pair("bad", "phone", HERE);
    assert!(matches!(last, Err(AccessError::TooManyFailures)), "{last:?}");
    let paired = access.pair(&code, "phone", HERE).expect("the owner's link is still good");
    assert_eq!(access.judge(&paired.token, HERE).expect("at once").scope, Scope::View);
    assert!(access.pair(&code, "phone", HERE).is_err());
}

#[test]
fn unknown_codes_take_no_lock() {
    let (folder, access, _) = access();
    let code = access.new_code(Scope::View).expect("a code");
    let lock = std::fs::File::open(folder.path().join("access.lock")).expect("the lock");
    lock.lock().expect("held, as by another program");
    for _ in 0..15 {
        let bad = access.pair("bad", "phone", HERE);
        assert!(matches!(bad, Err(AccessError::BadCode)), "{bad:?}");
    }
    let good = access.pair(&code, "phone", HERE);
    assert!(matches!(good, Err(AccessError::File(FileError::Busy { .. }))), "the owner's request times out: {good:?}");
    drop(lock);
    access.pair(&code, "phone", HERE).expect("it is still good");
}

#[test]
fn requests_have_a_rate() {
    let (_folder, access, file) = access();
    let token = file.change(|book| book.add("laptop", Scope::View, 1)).expect("a token");
    access.look();
    let grant = access.judge(&token, HERE).expect("it is good");
    let n = (0..1000).take_while(|_| access.count(&grant).is_ok()).count();
    assert!((200..300).contains(&n), "{n}");
}

#[tokio::test(start_paused = true)]
async fn token_revoked_by_another_process_is_noticed() {
    let (_folder, access, file) = access();
    let token = file.change(|book| book.add("laptop", Scope::Control, 1)).expect("a token");
    access.look();
    let grant = access.judge(&token, HERE).expect("it is good");
    let mut changes = access.changes();
    let following = tokio::spawn(access.clone().follow());
    file.change(|book| book.revoke("laptop")).expect("it is there");
    let start = Instant::now();
    changes.changed().await.expect("it follows");
    assert!(start.elapsed() <= LOOK_EVERY * 2, "{:?}", start.elapsed());
    assert!(!access.holds(&grant));
    access.judge(&token, HERE).expect_err("it is gone");
    following.abort();
}

#[test]
fn a_scope_that_shrinks_ends_what_was_granted() {
    let (_folder, access, file) = access();
    let token = file.change(|book| book.add("laptop", Scope::Control, 1)).expect("a token");
    access.look();
    let grant = access.judge(&token, HERE).expect("it is good");
    file.change(|book| {
        book.tokens[0].scope = Scope::View;
        Ok::<_, FileError>(())
    })
    .expect("changed");
    access.look();
    assert!(!access.holds(&grant));
    assert_eq!(access.judge(&token, HERE).expect("it is good").scope, Scope::View);
}

#[test]
fn damaged_or_missing_token_file_refuses_all() {
    let (folder, access, file) = access();
    let token = file.change(|book| book.add("laptop", Scope::Control, 1)).expect("a token");
    access.look();
    let path = folder.path().join("access.json");
    let kept = std::fs::read(&path).expect("a file");
    std::fs::write(&path, "{").expect("written");
    access.look();
    access.judge(&token, HERE).expect_err("nothing can be read");
    std::fs::write(&path, kept).expect("written");
    access.look();
    access.judge(&token, HERE).expect("the file is valid again");
    std::fs::remove_file(&path).expect("removed");
    access.look();
    access.judge(&token, HERE).expect_err("no token is valid");
}

#[test]
fn the_last_use_is_kept_coarsely() {
    let (_folder, access, file) = access();
    let token = file.change(|book| book.add("laptop", Scope::View, 1)).expect("a token");
    access.look();
    access.judge(&token, HERE).expect("it is good");
    access.keep_used().expect("written");
    let first = file.read().expect("a book").0.tokens[0].last_used_ms;
    assert!(first > 0);
    access.look();
    let stamp = file.stamp();
    access.judge(&token, HERE).expect("it is good");
    access.keep_used().expect("nothing to write");
    assert_eq!(file.stamp(), stamp, "a moment later it is not written again");
}
