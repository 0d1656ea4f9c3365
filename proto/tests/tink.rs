//! Bytes of both generations of Tinkerbell's agent protocol, as agents send them.

use prost::Message;
use proto::tink::action_status_request::StateType;
use proto::tink::older::{State, WorkflowActionStatus};
use proto::tink::{ActionMessage, ActionRequest, ActionResponse, ActionStatusRequest, is_newer_report};

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal digits")).collect()
}

/// Go's time that was never set.
const UNSET: prost_types::Timestamp = prost_types::Timestamp { seconds: -62_135_596_800, nanos: 0 };

#[test]
fn a_request_without_attributes() {
    let golden = bytes("0a1135323a35343a30303a30303a30303a3031");
    let request = ActionRequest { agent_id: Some("52:54:00:00:00:01".to_owned()), agent_attributes: None };
    assert_eq!(request.encode_to_vec(), golden);
    assert_eq!(ActionRequest::decode(&*golden).expect("a request"), request);
}

#[test]
fn a_report_with_an_empty_string_and_unset_times() {
    let golden = bytes(
        "0a0b64656661756c742f776631121135323a35343a30303a30303a30303a30311a0630315441534b220530314143542a0568656c6c6f30\
         023a0b088092b8c398feffffff01420b088092b8c398feffffff014a0052100a0e72756e6e696e6720616374696f6e",
    );
    let report = ActionStatusRequest {
        workflow_id: Some("default/wf1".to_owned()),
        agent_id: Some("52:54:00:00:00:01".to_owned()),
        task_id: Some("01TASK".to_owned()),
        action_id: Some("01ACT".to_owned()),
        action_name: Some("hello".to_owned()),
        action_state: Some(StateType::Running as i32),
        execution_start: Some(UNSET),
        execution_stop: Some(UNSET),
        execution_duration: Some(String::new()),
        message: Some(ActionMessage { message: Some("running action".to_owned()) }),
    };
    assert_eq!(report.encode_to_vec(), golden);
    assert_eq!(ActionStatusRequest::decode(&*golden).expect("a report"), report);
}

#[test]
fn an_empty_string_is_sent() {
    let response = ActionResponse { pid: Some(String::new()), ..ActionResponse::default() };
    assert_eq!(response.encode_to_vec(), [0x5a, 0x00]);
}

#[test]
fn a_report_of_the_older_generation() {
    let golden = bytes(
        "0a0b64656661756c742f77663112047461736b1a0568656c6c6f200132115374617274656420657865637574696f6e421135323a35343a\
         30303a30303a30303a3031",
    );
    let report = WorkflowActionStatus {
        workflow_id: "default/wf1".to_owned(),
        task_name: "task".to_owned(),
        action_name: "hello".to_owned(),
        action_status: State::Running as i32,
        seconds: 0,
        message: "Started execution".to_owned(),
        created_at: None,
        worker_id: "52:54:00:00:00:01".to_owned(),
    };
    assert_eq!(report.encode_to_vec(), golden);
    assert_eq!(WorkflowActionStatus::decode(&*golden).expect("a report"), report);
}

#[test]
fn the_generations_are_told_apart_by_their_bytes() {
    let older = |state: State, message: &str| {
        let (action_status, message) = (state as i32, message.to_owned());
        let report =
            WorkflowActionStatus { workflow_id: "a/b".to_owned(), action_status, message, ..Default::default() };
        report.encode_to_vec()
    };
    for state in [State::Pending, State::Running, State::Failed, State::Timeout, State::Success] {
        for message in ["", "said"] {
            assert!(!is_newer_report(&older(state, message)), "{state:?} {message}");
        }
    }
    let newer = |action_id: Option<&str>, state: Option<StateType>| {
        let report = ActionStatusRequest {
            workflow_id: Some("a/b".to_owned()),
            action_id: action_id.map(str::to_owned),
            action_state: state.map(|state| state as i32),
            ..Default::default()
        };
        report.encode_to_vec()
    };
    for (action_id, state) in
        [(Some(""), None), (Some("a"), Some(StateType::Running)), (None, Some(StateType::Unspecified))]
    {
        assert!(is_newer_report(&newer(action_id, state)), "{action_id:?} {state:?}");
    }
    for broken in [&[][..], &[0x07], &[0xff; 20], &[0x22, 0xff]] {
        is_newer_report(broken);
    }
}
