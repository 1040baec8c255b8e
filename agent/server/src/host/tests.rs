//! Tests of `Host` and `Origin` checks.

use super::*;

fn hosts(address: &str) -> HostPolicy {
    HostPolicy::of(address.parse().expect("an address"), HostOptions::default())
}

#[track_caller]
fn check(address: &str, answered: &[&str], refused: &[&str]) {
    let hosts = hosts(address);
    for host in answered {
        assert!(hosts.answers_for(host), "{address} refuses {host:?}");
    }
    for host in refused {
        assert!(!hosts.answers_for(host), "{address} answers for {host:?}");
    }
}

#[test]
fn loopback_answers_for_loopback_alone() {
    let refused = [
        "",
        ":8420",
        "localhost",
        "localhost:80",
        "localhost:08421",
        "localhost:+8420",
        "localhost:8420x",
        "localhost:",
        "localhost.:8420",
        "localhost.evil.example:8420",
        "evil.example:8420",
        "127.0.0.1.nip.io:8420",
        "user@localhost:8420",
        "localhost:8420@evil.example",
        "127.0.0.1:80:8420",
        "127.1:8420",
        "0x7f000001:8420",
        "2130706433:8420",
        "127.0.0.2:8420",
        "0.0.0.0:8420",
        "[::]:8420",
        "::1:8420",
        "[::1",
        "[::1]",
        "[::1]8420",
        "[::ffff:127.0.0.1]:8420",
        "[127.0.0.1]:8420",
        "192.168.1.5:8420",
        " localhost:8420",
        "lоcalhost:8420",
    ];
    check("127.0.0.1:8420", &["127.0.0.1:8420", "localhost:8420", "LocalHost:8420", "[::1]:8420"], &refused);
}

#[test]
fn a_given_address_answers_for_itself_and_loopback() {
    check("192.168.1.5:8420", &["192.168.1.5:8420", "localhost:8420"], &["192.168.1.6:8420", "rig.local:8420"]);
    check("[fe80::1]:8420", &["[fe80::1]:8420", "[FE80:0::1]:8420"], &["[fe80::2]:8420"]);
}

#[test]
fn all_addresses_answer_for_addresses_and_no_name() {
    check("0.0.0.0:8420", &["192.168.1.6:8420", "[fe80::2]:8420"], &["rig.local:8420", "192.168.1.6:80"]);
}

#[test]
fn on_port_80_a_host_may_leave_it_out() {
    check("127.0.0.1:80", &["localhost", "127.0.0.1", "[::1]", "localhost:80"], &["localhost:8420"]);
}

#[test]
fn the_link_can_be_opened_here() {
    assert_eq!(hosts("127.0.0.1:81").link(), "http://127.0.0.1:81/");
    assert_eq!(hosts("0.0.0.0:81").link(), "http://127.0.0.1:81/");
    assert_eq!(hosts("[::]:81").link(), "http://[::1]:81/");
}

#[test]
fn a_request_line_with_a_foreign_address_is_refused() {
    let hosts = hosts("127.0.0.1:8420");
    let mut headers = HeaderMap::new();
    headers.insert(header::HOST, "localhost:8420".parse().expect("a value"));
    let judge = |uri: &str| hosts.judge(&headers, &uri.parse().expect("an address"));
    assert_eq!(judge("/"), Ok(()));
    assert_eq!(judge("http://127.0.0.1:8420/"), Ok(()));
    judge("http://evil.example/").expect_err("it is for another");
}

#[test]
fn a_given_name_is_answered_for_on_its_ports() {
    let named = |names: &[&str]| {
        let names = names.iter().map(|name| Name::read(name).expect("a name")).collect();
        HostPolicy::of("127.0.0.1:8420".parse().expect("an address"), HostOptions { names, ..HostOptions::default() })
    };
    let hosts = named(&["Rig.tail1234.ts.net", "box:8443"]);
    for host in ["rig.tail1234.ts.net", "rig.tail1234.ts.net:443", "RIG.tail1234.ts.net:8420", "box:8443"] {
        assert!(hosts.answers_for(host), "{host}");
    }
    for host in ["rig.tail1234.ts.net:8421", "rig.tail1234.ts.net.", "x.rig.tail1234.ts.net", "box", "box:443", "box:"]
    {
        assert!(!hosts.answers_for(host), "{host}");
    }
    for text in ["", ":80", "a b", "a/b", "a..b", "*.example", "user@rig", "rig:80:80", "rig:+80", "rig:", "é.example"]
    {
        assert_eq!(Name::read(text), None, "{text}");
    }
}

#[test]
fn another_machine_is_sent_where_it_can_reach() {
    let far = |address: &str, names: &[&str], scheme| {
        let names = names.iter().map(|name| Name::read(name).expect("a name")).collect();
        let hosts = HostPolicy::of(
            address.parse().expect("an address"),
            HostOptions { scheme, names, ..HostOptions::default() },
        );
        hosts.far_link(Some("192.168.1.5".parse().expect("an address")))
    };
    for (address, names, scheme, link) in [
        ("127.0.0.1:8420", &[][..], Scheme::Http, None),
        ("127.0.0.1:8420", &["rig.ts.net"], Scheme::Http, Some("https://rig.ts.net/")),
        ("127.0.0.1:8420", &["rig.ts.net:8443"], Scheme::Http, Some("https://rig.ts.net:8443/")),
        ("0.0.0.0:8420", &[], Scheme::Http, Some("http://192.168.1.5:8420/")),
        ("0.0.0.0:8420", &["rig.local"], Scheme::Https, Some("https://rig.local:8420/")),
        ("10.0.0.2:8420", &[], Scheme::Https, Some("https://10.0.0.2:8420/")),
    ] {
        assert_eq!(far(address, names, scheme).as_deref(), link, "{address} {names:?}");
    }
}

#[track_caller]
fn judged(hosts: &HostPolicy, host: &str, origins: &[&str]) -> Result<(), OriginError> {
    let mut headers = HeaderMap::new();
    headers.insert(header::HOST, host.parse().expect("a value"));
    for origin in origins {
        headers.append(header::ORIGIN, origin.parse().expect("a value"));
    }
    hosts.judge_origin(&headers)
}

#[test]
fn a_page_is_of_the_host_that_it_asks() {
    let hosts = hosts("127.0.0.1:8420");
    for host in ["127.0.0.1:8420", "localhost:8420", "[::1]:8420"] {
        assert_eq!(judged(&hosts, host, &[&format!("http://{host}")]), Ok(()), "{host}");
        assert_eq!(judged(&hosts, host, &[]), Err(OriginError::Missing));
    }
    for origin in [
        "",
        "null",
        "http://localhost:8420",
        "https://127.0.0.1:8420",
        "http://127.0.0.1",
        "http://127.0.0.1:8421",
        "http://127.0.0.1:8420/",
        "http://127.0.0.1:8420.evil.example",
        "http://evil.example",
        "http://127.0.0.1:8420@evil.example",
        "ws://127.0.0.1:8420",
        "file://127.0.0.1:8420",
        "127.0.0.1:8420",
    ] {
        judged(&hosts, "127.0.0.1:8420", &[origin]).expect_err(origin);
    }
    judged(&hosts, "127.0.0.1:8420", &["http://127.0.0.1:8420"; 2]).expect_err("two of them");
}

#[test]
fn behind_a_proxy_a_page_may_have_come_by_tls() {
    let names = vec![Name::read("rig.ts.net").expect("a name")];
    let given = HostOptions { names, origins: vec!["https://page.example".to_owned()], ..HostOptions::default() };
    let hosts = HostPolicy::of("127.0.0.1:8420".parse().expect("an address"), given);
    for (host, origin, good) in [
        ("rig.ts.net", "https://rig.ts.net", true),
        ("rig.ts.net", "http://rig.ts.net", true),
        ("rig.ts.net", "https://page.example", true),
        ("rig.ts.net", "http://page.example", false),
        ("rig.ts.net", "https://page.example:444", false),
        ("rig.ts.net", "https://127.0.0.1:8420", false),
        ("127.0.0.1:8420", "https://127.0.0.1:8420", false),
        ("127.0.0.1:8420", "https://rig.ts.net", false),
    ] {
        assert_eq!(judged(&hosts, host, &[origin]).is_ok(), good, "{host} {origin}");
    }
}

#[test]
fn an_origin_has_no_path() {
    assert!(is_origin("https://page.example:8443") && is_origin("http://[::1]:80"));
    for text in ["", "*", "null", "https://", "page.example", "https://page.example/", "https://a b", "ws://x"] {
        assert!(!is_origin(text), "{text}");
    }
}
