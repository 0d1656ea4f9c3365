//! The keys of ours in a Template's text: what is refused, and what they mean for upstream, which is nothing.

use super::{AGENT, hardware, workflow};
use crate::workflow::render;
use api::tinkerbell::{Template, Workflow};

const TASKS: &str = "
name: rack
tasks:
- name: storage
  worker: a
  retries: 2
  retry-seconds: 30
  actions:
  - {name: image, image: image2disk}
  - {name: wipe, image: wipe, idempotent: false}
- name: compute
  worker: b
  depends-on: [storage]
  actions: [{name: image, image: image2disk, retries: 1, idempotent: true}]
- name: last
  worker: c
  depends-on: [compute, storage]
  actions: [{name: image, image: image2disk}]
";

fn rendered(text: &str) -> Result<crate::workflow::document::Rendered, String> {
    render(text, &workflow("w"), Some(&hardware()))
}

#[test]
fn they_are_kept_as_they_were_rendered() {
    let with = rendered(TASKS).expect("rendered");
    assert_eq!(
        with.extras.text().as_deref(),
        Some(
            "{\"tasks\":{\"compute\":{\"depends-on\":[\"storage\"],\"actions\":{\"image\":{\"retries\":1,\"idempotent\":true}}},\
             \"last\":{\"depends-on\":[\"compute\",\"storage\"]},\
             \"storage\":{\"retry-seconds\":30,\"actions\":{\"image\":{\"retries\":2},\"wipe\":{\"idempotent\":false}}}}}"
        )
    );
    assert_eq!(with.extras.graph(&with.tasks), Some(vec![vec![], vec![0], vec![1, 0]]));
    // What upstream reads of the text is the same as without them.
    let ours =
        ["  retries: 2\n", "  retry-seconds: 30\n", "  depends-on: [storage]\n", "  depends-on: [compute, storage]\n"];
    let text = ours.iter().fold(TASKS.to_owned(), |text, line| text.replace(line, ""));
    let text = text.replace(", retries: 1, idempotent: true", "").replace(", idempotent: false", "");
    let without = rendered(&text).expect("rendered");
    assert_eq!((without.extras.text(), without.extras.graph(&without.tasks)), (None, None));
    assert_eq!(without.tasks, with.tasks);
}

#[test]
fn a_bad_one_is_refused_by_its_place_with_what_to_write() {
    let most = "write a whole number from 0 to 4: an action is served 5 times at most";
    let names = "write the names of tasks of this template as [a, b]";
    for (from, to, said) in [
        ("[storage]", "[disks]", "tasks[1].depends-on[0]: there is no task 'disks'; write one of 'last', 'storage'"),
        (
            "[storage]",
            "[compute]",
            "tasks[1].depends-on[0]: 'compute' cannot wait for itself; write another task, or leave it away",
        ),
        ("[compute, storage]", "[compute, compute]", "tasks[2].depends-on[1]: 'compute' is there twice; write it once"),
        (
            "[storage]",
            "[storage, 7]",
            "tasks[1].depends-on[1]: 7 is no text; write the name of a task, in quotes if YAML takes it for a number or a yes or no",
        ),
        ("[storage]", "[[storage]]", "tasks[1].depends-on[0]: a list is no text; write the name of a task"),
        ("[storage]", "[~]", "tasks[1].depends-on[0]: nothing is no text"),
        ("[storage]", "storage", &format!("tasks[1].depends-on: \"storage\" is no list; {names}")),
        ("[storage]", "", &format!("tasks[1].depends-on: nothing is no list; {names}")),
        ("[storage]", "{storage: true}", &format!("tasks[1].depends-on: a map is no list; {names}")),
        ("retries: 2", "retries: -1", &format!("tasks[0].retries: -1 is none; {most}")),
        ("retries: 2", "retries: 5", &format!("tasks[0].retries: 5 is none; {most}")),
        ("retries: 2", "retries: 1000000000000000000000", "tasks[0].retries: "),
        ("retries: 2", "retries: 1.5", &format!("tasks[0].retries: 1.5 is none; {most}")),
        ("retries: 2", "retries: '2'", &format!("tasks[0].retries: \"2\" is none; {most}")),
        ("retries: 2", "retries:", &format!("tasks[0].retries: nothing is none; {most}")),
        ("retries: 1", "retries: many", &format!("tasks[1].actions[0].retries: \"many\" is none; {most}")),
        ("retries: 1", "retries: -2", &format!("tasks[1].actions[0].retries: -2 is none; {most}")),
        (
            "retry-seconds: 30",
            "retry-seconds: -30",
            "tasks[0].retry-seconds: -30 is none; write whole seconds from 0 to 600",
        ),
        (
            "retry-seconds: 30",
            "retry-seconds: 601",
            "tasks[0].retry-seconds: 601 is none; write whole seconds from 0 to 600",
        ),
        (
            "retry-seconds: 30",
            "retry-seconds: 30s",
            "tasks[0].retry-seconds: \"30s\" is none; write whole seconds from 0 to 600",
        ),
        (
            "  retries: 2\n",
            "",
            "tasks[0].retry-seconds: nothing of this task is retried; write retries too, or leave it away",
        ),
        (
            "idempotent: true",
            "idempotent: 'true'",
            "tasks[1].actions[0].idempotent: \"true\" is none; write true or false",
        ),
        ("idempotent: true", "idempotent: ~", "tasks[1].actions[0].idempotent: nothing is none; write true or false"),
        (
            "idempotent: true",
            "idempotent: false",
            "tasks[1].actions[0].retries: an action with idempotent: false is never served again; write 0, or leave idempotent away",
        ),
        ("depends-on: [storage]", "depends_on: [storage]", "tasks[1].depends_on: write it as depends-on"),
        ("retry-seconds: 30", "retry_seconds: 30", "tasks[0].retry_seconds: write it as retry-seconds"),
        ("retries: 2", "idempotent: true", "tasks[0].idempotent: write it at each action that it is meant for"),
        ("retries: 1", "depends-on: [storage]", "tasks[1].actions[0].depends-on: write it at the task"),
        ("retries: 1", "retry-seconds: 3", "tasks[1].actions[0].retry-seconds: write it at the task"),
    ] {
        assert_eq!(TASKS.matches(from).count(), 1, "{from}");
        let error = rendered(&TASKS.replace(from, to)).expect_err(to);
        assert!(error.starts_with(said), "{to}: {error}");
    }
    let alone = "name: a\ntasks: [{name: a, worker: b, depends-on: [c], actions: [{name: a, image: a}]}]";
    let error = rendered(alone).expect_err("no such task");
    assert_eq!(error, "tasks[0].depends-on[0]: there is no task 'c'; leave it away: this is the only task");
}

#[test]
fn a_circle_is_refused_with_its_way() {
    let two = TASKS.replace("retries: 2\n", "retries: 2\n  depends-on: [last]\n");
    assert_eq!(
        rendered(&two).expect_err("a circle"),
        "tasks[0].depends-on[0]: these wait for each other and would never begin: 'storage' waits for 'last' waits for 'compute' \
         waits for 'storage'; take one of them out"
    );
    // Who waits for a circle is not part of it.
    let behind = "
name: a
tasks:
- {name: p, worker: w, depends-on: [q], actions: [{name: a, image: a}]}
- {name: q, worker: w, depends-on: [free, r], actions: [{name: a, image: a}]}
- {name: r, worker: w, depends-on: [q], actions: [{name: a, image: a}]}
- {name: free, worker: w, actions: [{name: a, image: a}]}
";
    assert_eq!(
        rendered(behind).expect_err("a circle"),
        "tasks[1].depends-on[1]: these wait for each other and would never begin: 'q' waits for 'r' waits for 'q'; take one of them out"
    );
}

/// As it is applied: the objects of a file, by kind.
#[test]
fn the_example_is_rendered() {
    let text = include_str!("../../../../examples/workflow-graph.yaml");
    let mut objects = text.split("\n---\n");
    let template: Template = serde_saphyr::from_str(objects.next().expect("a Template")).expect("a Template");
    let run: Workflow = serde_saphyr::from_str(objects.next().expect("a Workflow")).expect("a Workflow");
    assert_eq!((run.spec.template_ref.clone(), objects.next()), (template.metadata.name, None));
    let rendered = render(&template.spec.data.expect("a text"), &run, Some(&hardware())).expect("rendered");
    let names: Vec<_> = rendered.tasks.iter().map(|task| task.name.as_str()).collect();
    assert_eq!(names, ["storage", "first worker", "second worker", "check"]);
    assert_eq!(rendered.extras.graph(&rendered.tasks), Some(vec![vec![], vec![0], vec![0], vec![1, 2]]));
    assert_eq!(rendered.tasks[0].agent_id, AGENT);
    let again = |task: usize, action: &str| rendered.extras.retries(&rendered.tasks[task], action);
    assert_eq!([again(0, "image"), again(1, "image"), again(1, "join"), again(3, "answers")], [2, 2, 0, 4]);
}
