//! Every function that is served, with arguments of every kind: all single ones, and of several a choice that is the same each time.

use super::{Go, Question, question};
use planner::workflow::functions;
use serde_json::{Value, json};
use std::fmt::Write;

/// Written in the template, or read from the data.
const ARGUMENTS: &[&str] = &[
    "\"\"",
    "\"abc\"",
    "\"Hello, wörld ÉÀ ß\"",
    "\" a b  c \"",
    "\"a,b,,c\"",
    "\",\"",
    "\"12\"",
    "\"0x1f\"",
    "\"-3.00\"",
    "\"/a/../b//c.tar.gz\"",
    "`{\"a\": [1, 2.5, \"<x>\"], \"b\": null}`",
    "\"a\\nb\\t\\\"q\\\"\"",
    "0",
    "1",
    "5",
    "-2",
    "2.5",
    "-0.125",
    "true",
    "false",
    "nil",
    "(list)",
    "(list 3 1 2)",
    "(list \"b\" \"a\" \"b\" \"\" nil)",
    "(dict \"a\" 1 \"b\" \"x\" \"c\" (dict \"d\" true))",
    "(dict)",
    "$.text",
    "$.whole",
    "$.float",
    "$.nothing",
    "$.list",
    "$.map",
    "(int $.whole)",
    "\"YWJj\"",
    "\"MFRGG===\"",
    "\"a\"",
];

fn data() -> Value {
    json!({
        "text": "tëxt", "whole": 7, "float": 0.1, "nothing": null,
        "list": ["x", "y", "x", {"a": 1}], "map": {"a": "x", "b": {"c": [1.5]}, "d": null},
    })
}

/// A whole number of so many, and the next; the same on every machine.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % end
    }
}

fn call(name: &str, arguments: &[&str]) -> String {
    let mut call = name.to_owned();
    for argument in arguments {
        write!(call, " {argument}").expect("a String takes everything");
    }
    // In their order, which is none in Go.
    let sorted = if matches!(name, "keys" | "values") { " | sortAlpha" } else { "" };
    format!("{{{{ {call}{sorted} }}}}|{{{{ kindIs \"slice\" ({call}) }}}}")
}

#[test]
fn functions_with_chosen_arguments() {
    let Some(go) = Go::find("functions_with_chosen_arguments") else { return };
    let (data, mut draw, mut questions) = (data(), Draw(1), Vec::<Question>::new());
    let own = ["toYaml", "fromYaml", "formatPartition", "netmaskToPrefixLength"];
    for name in functions().filter(|name| !own.contains(name)) {
        questions.push(question(call(name, &[]), &data));
        questions.extend(ARGUMENTS.iter().map(|argument| question(call(name, &[argument]), &data)));
        for (arguments, many) in [(2, 50), (3, 30), (4, 8)] {
            for _ in 0..many {
                let drawn: Vec<&str> = (0..arguments).map(|_| ARGUMENTS[draw.below(ARGUMENTS.len())]).collect();
                questions.push(question(call(name, &drawn), &data));
            }
        }
    }
    let (rendered, refused) = go.compare("chosen", &questions);
    assert!(rendered > 2000 && refused > 2000, "{rendered} rendered, {refused} refused");
}

/// Arguments that a draw does not find, for functions that want several of a kind.
#[test]
fn functions_as_they_are_meant() {
    let Some(go) = Go::find("functions_as_they_are_meant") else { return };
    let data = data();
    let texts = [
        "{{ substr 1 3 \"abcdef\" }} {{ substr -1 3 \"abcdef\" }} {{ substr 2 -1 \"abcdef\" }} {{ substr 2 99 \"abcdef\" }}",
        "{{ substr 4 2 \"abcdef\" }}",
        "{{ substr 1 2 \"é\" }}",
        "{{ trunc 3 \"abcdef\" }} {{ trunc -3 \"abcdef\" }} {{ trunc 9 \"abc\" }} {{ trunc -9 \"abc\" }} {{ trunc 0 \"abc\" }}",
        "{{ abbrev 5 \"hello world\" }} {{ abbrev 3 \"hello\" }} {{ abbrevboth 5 10 \"1234 5678 9123\" }}",
        "{{ abbrevboth 0 6 \"1234 5678 9123\" }} {{ abbrevboth 20 9 \"1234 5678 9123\" }} {{ abbrevboth 6 7 \"1234 5678 9123\" }}",
        "{{ wrap 5 \"hello big world\" }}|{{ wrap 80 \"short\" }}|{{ wrapWith 5 \"\\t\" \"hello enormous world\" }}",
        "{{ wrap 5 \"a verylongword b\" }}|{{ wrap 0 \"ab c\" }}|{{ wrapWith 3 \"\" \"abcdefgh\" }}",
        "{{ title \"hello wörld-wide über_all 3d x'y\" }} {{ untitle \"Hello World\" }} {{ swapcase \"Hello World\" }}",
        "{{ initials \"First Try\" }} {{ nospace \" a b\\tc\\n\" }} {{ cat \"a\" 1 nil true }} {{ plural \"one\" \"many\" 2 }}",
        "{{ upper \"straße ŉ ᾳ ǆ\" }} {{ lower \"İSTANBUL ΣΑΣ\" }}",
        "{{ quote \"a\\\"b\" \"\\x00\\a\\v\\u00a0\\u0301é😀\\u200b\" 1 nil true }} {{ squote \"a'b\" 2.5 }}",
        "{{ split \"$\" \"foo$bar$baz\" }} {{ (splitn \"$\" 2 \"foo$bar$baz\")._1 }} {{ splitList \"\" \"aé\" }} {{ splitn \",\" 0 \"a,b\" }}",
        "{{ splitn \",\" -1 \"a,b,c\" }} {{ join \"-\" (list 1 \"a\" nil true) }} {{ join \",\" 5 }} {{ join \",\" nil }}",
        "{{ sortAlpha (list \"c\" \"a\" \"B\" 1) }} {{ toStrings (list 1 2.5 nil \"x\") }} {{ sortAlpha nil }}",
        "{{ seq 5 }}|{{ seq -3 }}|{{ seq 0 2 10 }}|{{ seq 3 1 }}|{{ seq 10 -3 1 }}|{{ seq 1 -1 5 }}|{{ seq 5 1 1 }}|{{ seq 1 2 3 4 }}",
        "{{ until 4 }} {{ until -3 }} {{ untilStep 0 10 3 }} {{ untilStep 10 0 -4 }} {{ untilStep 0 10 0 }} {{ untilStep 3 3 1 }}",
        "{{ range until 3 }}{{ . }},{{ end }}{{ until 100001 | len }}",
        "{{ add 9223372036854775807 1 }} {{ sub -9223372036854775807 2 }} {{ mul 4611686018427387904 2 }} {{ div 7 -2 }} {{ mod -7 2 }}",
        "{{ div 1 0 }}",
        "{{ int \"017\" }} {{ int \"0b11\" }} {{ int \"1_000\" }} {{ int \"_1\" }} {{ int \"0x_1\" }} {{ int \"3.0\" }} {{ int \"3.5\" }} {{ int \"\" }}",
        "{{ int \"9223372036854775808\" }} {{ int 1e300 }} {{ int -2.9 }} {{ int true }} {{ int64 \"+5\" }} {{ int \"00\" }} {{ int \"08\" }} {{ int \"-0x10\" }}",
        "{{ atoi \"12\" }} {{ atoi \"x\" }} {{ atoi \"-99999999999999999999\" }} {{ atoi \"99999999999999999999\" }} {{ atoi \"\" }} {{ atoi \"+\" }} {{ atoi \"0x1\" }}",
        "{{ toDecimal \"777\" }} {{ toDecimal 10 }} {{ toDecimal \"8\" }} {{ float64 \"1.5\" }} {{ float64 \"x\" }} {{ float64 3 }}",
        "{{ addf 0.1 0.2 }} {{ subf 3 0.1 0.2 }} {{ mulf 1.1 1.1 }} {{ divf 1 3 }} {{ divf 10 4 }} {{ divf -1 7 }} {{ divf 2 3 }} {{ add1f 1.5 }}",
        "{{ divf 1 0 }}",
        "{{ round 2.5 0 }} {{ round -2.5 0 }} {{ round 123.456 2 }} {{ round 15.5 -1 }} {{ round 1.25 1 0.6 }} {{ ceil 1.2 }} {{ floor -1.2 }}",
        "{{ max 1 3 2 }} {{ min 3 \"1\" 2 }} {{ biggest 1 2 }} {{ maxf 1.5 2 }} {{ minf 1.5 2 }}",
        "{{ first (list 1 2) }} {{ last (list 1 2) }} {{ rest (list 1 2) }} {{ initial (list 1 2) }} {{ first (list) }} {{ reverse (list 1 2 3) }}",
        "{{ append (list 1) 2 }} {{ prepend (list 1) 2 }} {{ concat (list 1) (list 2) }} {{ compact (list 1 0 \"\" nil \"a\") }} {{ chunk 2 (list 1 2 3) }}",
        "{{ uniq (list \"a\" \"b\" \"a\") }} {{ without (list \"a\" \"b\") \"a\" }} {{ has \"a\" (list \"a\") }} {{ has \"z\" (list \"a\") }} {{ has 1 nil }}",
        "{{ slice (list 1 2 3) 1 }} {{ slice (list 1 2 3) 1 2 }} {{ slice (list) }}",
        "{{ slice (list 1 2 3) 2 1 }}",
        "{{ slice \"abc\" 1 }}",
        "{{ dict \"a\" 1 \"b\" }} {{ get .map \"a\" }}{{ get .map \"z\" }} {{ hasKey .map \"d\" }} {{ pluck \"a\" .map (dict \"a\" 2) (dict) }}",
        "{{ pick .map \"a\" \"z\" }} {{ omit .map \"a\" }} {{ keys .map | sortAlpha }} {{ values (dict \"a\" 1) }} {{ dig \"b\" \"c\" \"x\" .map }}",
        "{{ dig \"b\" \"z\" \"none\" .map }} {{ dig \"z\" \"y\" \"none\" .map }}",
        "{{ dig \"a\" \"b\" \"none\" .map }}",
        "{{ default \"d\" .nothing }} {{ default \"d\" \"x\" }} {{ default 5 0 }} {{ empty .list }} {{ coalesce 0 \"\" nil \"x\" }} {{ all 1 \"a\" }} {{ any 0 \"\" }}",
        "{{ ternary \"a\" \"b\" true }} {{ true | ternary \"a\" \"b\" }} {{ kindOf .map }} {{ kindOf .list }} {{ kindOf .nothing }} {{ kindIs \"map\" 5 }}",
        "{{ ternary \"a\" \"b\" 1 }}",
        "{{ toJson .map }} {{ toRawJson \"<&>\" }} {{ toJson \"<&>\\u2028\\x00\\f\" }} {{ toPrettyJson .map }} {{ toPrettyJson (list) }}",
        "{{ toJson 1e21 }} {{ toJson 1e20 }} {{ toJson 0.000001 }} {{ toJson 1e-7 }} {{ toJson 1.50 }} {{ toJson -1e-10 }} {{ toJson 3.0 }}",
        "{{ fromJson `{\"a\": [1, 2.5, true, null]}` }} {{ fromJson \"x\" }} {{ (fromJson `{\"a\": 1000000}`).a | int }}",
        "{{ mustFromJson \"x\" }}",
        "{{ b64enc \"é\" }} {{ b64dec \"w6k=\" }} {{ b64dec \"YW\\nJj\" }} {{ b32enc \"abc\" }} {{ b32dec \"MFRGG===\" }}",
        "{{ sha1sum \"a\" }} {{ sha256sum \"a\" }} {{ sha512sum \"\" }} {{ adler32sum \"Wikipedia\" }}",
        "{{ base \"/a/b/\" }} {{ base \"\" }} {{ base \"//\" }} {{ dir \"/a/b\" }} {{ dir \"a\" }} {{ dir \"/\" }} {{ clean \"a/../../b/./c//\" }} {{ clean \"/..\" }}",
        "{{ ext \"a.tar.gz\" }} {{ ext \"a.b/c\" }} {{ isAbs \"/a\" }} {{ osBase \"a/b\" }} {{ osDir \"a/b\" }} {{ osExt \".x\" }} {{ osClean \"\" }} {{ osIsAbs \"a\" }}",
        "{{ indent 2 \"a\\nb\" }}|{{ nindent 0 \"a\" }}|{{ repeat 3 \"ab\" }}|{{ replace \"\" \"-\" \"aé\" }}|{{ hello }}",
        "{{ repeat -1 \"a\" }}",
        "{{ fail \"no\" }}",
    ];
    let questions: Vec<_> = texts.iter().map(|text| question(*text, &data)).collect();
    go.compare("meant", &questions);
}
