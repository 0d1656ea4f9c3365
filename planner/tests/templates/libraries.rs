//! Words, versions, durations and types: what is the work of a library of Go's, or of Go's own.

use super::{Go, question};
use serde_json::json;

/// Names as people write them, and the ends of every rule about where a word begins.
#[test]
fn words_in_cases() {
    let Some(go) = Go::find("words_in_cases") else { return };
    let parts = ["a", "bc", "A", "BC", "Def", "1", "23", "_", "-", " ", "__", "\t", "\u{b}", ".", "$", "!", ""];
    let words: Vec<String> = parts
        .iter()
        .flat_map(|one| parts.iter().map(move |two| [*one, *two]))
        .flat_map(|start| parts.iter().map(move |three| [start[0], start[1], *three]))
        .flat_map(|start| parts.iter().map(move |four| start.concat() + *four))
        .collect();
    let each = words.chunks(100).map(|some| {
        let text = "{{ range .all }}{{ camelcase . }}|{{ kebabcase . }}|{{ snakecase . }}\n{{ end }}";
        question(text, &json!({ "all": some }))
    });
    let longer = [
        "HTTP2xx",
        "Bld4Floor",
        "some_HTTPStatus-code",
        "GOPathIsSet",
        "x1y2Z3",
        "_leading",
        "trailing_",
        "a  b",
        "HTTP20Server",
    ];
    let each: Vec<_> = each
        .chain([question(
            "{{ range .all }}{{ camelcase . }} {{ kebabcase . }} {{ snakecase . }}\n{{ end }}",
            &json!({ "all": longer }),
        )])
        .collect();
    assert_eq!(go.compare("words", &each), (each.len(), 0));
}

/// Each constraint with each version; and constraints of several, sound or not.
#[test]
fn versions_and_constraints() {
    let Some(go) = Go::find("versions_and_constraints") else { return };
    let versions = [
        "1.2.3",
        "v1.2.3",
        "1.2",
        "1",
        "0.0.0",
        "0.0.3",
        "0.0.4",
        "0.2.3",
        "0.2.9",
        "0.3.0",
        "1.0.0",
        "1.3.0",
        "2.0.0",
        "11.1.0",
        "1.2.3-alpha",
        "1.2.3-alpha.1",
        "1.2.3-beta.11",
        "1.2.3-beta.2",
        "1.2.3-rc.1+b.7",
        "1.2.3+b",
        "1.2.3-01",
        "1.2.3-0a",
        "1.2.4-alpha",
        "2.0.0-1",
        "x",
        "",
        "1.2.3.4",
        "01.2.3",
        "1.2.3-",
        "99999999999999999999.0.0",
        " 1.2.3",
    ];
    let bare = [
        "1.2.3",
        "1.2",
        "1",
        "1.x",
        "1.2.*",
        "*",
        "x",
        "0.0.3",
        "0.2",
        "0",
        "0.0.0",
        "1.2.3-alpha",
        "1.2-beta",
        "1.2.3-0",
        "v2.0.0",
        "1x",
        "1|2",
    ];
    let operators = ["", "=", "!=", ">", "<", ">=", "=>", "<=", "=<", "~", "~>", "^", "== ", "> "];
    let several = [
        "",
        " ",
        ">1 <2",
        ">=1.2, <2.0",
        "1.0 - 2.0",
        "1.2.3 - 1.2.4 || 0.x",
        "^1 || ^0.2",
        "||",
        "1||",
        ">1,",
        ", >1",
        "1.2.3 ,1.2.3",
        "1 -2",
        "~1.2.3,>=1.2.3",
        ">=1.0.0-0 <2",
        "1.0 - 2.0 - 3.0",
        "!=1.2.3 !=1.3",
        "a",
        ">",
        "1.2.3 a",
    ];
    let all = operators.iter().flat_map(|operator| bare.iter().map(move |bare| format!("{operator}{bare}")));
    let questions: Vec<_> = all
        .chain(several.map(str::to_owned))
        .flat_map(|constraint| {
            versions.map(|version| question("{{ semverCompare .c .v }}", &json!({"c": constraint, "v": version})))
        })
        .collect();
    let (rendered, refused) = go.compare("versions", &questions);
    assert!(rendered > 4000 && refused > 500, "{rendered} rendered, {refused} refused");
}

#[test]
fn durations_as_go_has_them() {
    let Some(go) = Go::find("durations_as_go_has_them") else { return };
    let seconds = [
        "0",
        "1",
        "59",
        "60",
        "3600",
        "3661",
        "86400",
        "-95",
        "+5",
        "x",
        "",
        "1.5",
        "9223372036854775807",
        "-9223372036854775808",
        "99999999999999999999",
    ];
    let written = [
        "1h",
        "2h45m",
        "90m",
        "-3.5h",
        "1.5s",
        "1500ms",
        "2us",
        "2µs",
        "24h",
        "25h",
        "720h",
        "721h",
        "8760h",
        "8761h",
        "100000h",
        "0",
        "+0",
        "-0",
        "",
        "-",
        "1",
        ".5h",
        "5.h",
        ".h",
        "1d",
        "1h 2m",
        "1.0000000000000000000000001h",
        "9223372036854775807ns",
        "9223372036854775808ns",
        "-9223372036854775808ns",
        "2562048h",
        "1h1h1h",
        "é",
    ];
    let of = |name: &str, all: &[&str]| {
        let text = format!("{{{{ range .all }}}}{{{{ {name} . }}}}|{{{{ end }}}}");
        question(text, &json!({ "all": all }))
    };
    let others = question(
        "{{ duration 1.5 }}{{ duration nil }}{{ durationRound true }}{{ durationRound (list 1) }}",
        &json!({}),
    );
    assert_eq!(go.compare("durations", &[of("duration", &seconds), of("durationRound", &written), others]), (3, 0));
}

#[test]
fn types_as_far_as_they_are_known() {
    let Some(go) = Go::find("types_as_far_as_they_are_known") else { return };
    let data =
        json!({"text": "a", "list": [1, "x"], "map": {"a": {"b": null}}, "half": 0.5, "yes": true, "nothing": null});
    let same = "{{ deepEqual .map (dict \"a\" (dict \"b\" nil)) }} {{ deepEqual .map .list }} {{ deepEqual .text \"a\" }} {{ deepEqual 0.5 .half }} \
                {{ deepEqual .nothing nil }} {{ deepEqual 1 2 }} {{ deepEqual 1 1.0 }} {{ deepEqual (list 1) (list 2) }}";
    let types = "{{ typeOf .text }} {{ typeOf .half }} {{ typeOf .yes }} {{ typeOf .nothing }} {{ typeIs \"string\" .text }} \
                 {{ typeIs \"string\" .list }} {{ typeIs \"string\" .map }} {{ typeIs \"string\" 1 }} {{ typeIsLike \"string\" .text }} {{ typeIsLike \"bool\" 1 }}";
    assert_eq!(go.compare("types", &[question(same, &data), question(types, &data)]), (2, 0));
    for refused in [
        "{{ typeOf 1 }}",
        "{{ typeIs \"int\" 1 }}",
        "{{ typeOf .map }}",
        "{{ typeIs \"[]string\" .list }}",
        "{{ deepEqual 1 1 }}",
        "{{ deepEqual (split \",\" \"a\") (dict \"_0\" \"a\") }}",
    ] {
        assert!(planner::workflow::plain(refused, &data).is_err(), "{refused}");
    }
}
