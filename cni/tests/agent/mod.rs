//! In the place of the node's agent: answers as it is told.

use proto::interfaces::v1alpha1::interfaces_server::{Interfaces, InterfacesServer};
use proto::interfaces::v1alpha1::{
    AttachRequest, AttachResponse, DetachRequest, DetachResponse, Interface, Route, StateRequest, StateResponse,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

/// The pod's only NIC.
type Answer = Result<Interface, Status>;

pub struct Agent {
    said: Said,
    /// Ends the server when it is dropped.
    _runtime: tokio::runtime::Runtime,
}

#[derive(Clone)]
struct Said(Arc<Mutex<Told>>);

struct Told {
    answer: Result<Vec<Interface>, Status>,
    detached: Vec<String>,
    /// The annotations of the last question.
    asked: BTreeMap<String, String>,
}

impl Said {
    fn lock(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub fn interface(name: &str, device: &str) -> Interface {
    Interface {
        name: name.to_owned(),
        device: device.to_owned(),
        mac_address: "02:00:00:00:20:07".to_owned(),
        mtu: 1442,
        addresses: vec!["10.20.0.7/24".to_owned()],
        routes: vec![Route { destination: "10.30.0.0/24".to_owned(), gateway: "10.20.0.1".to_owned() }],
        configured_by_pod: false,
        function: false,
    }
}

impl Agent {
    pub fn start(folder: &Path, answer: Answer) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let answer = answer.map(|interface| vec![interface]);
        let said = Said(Arc::new(Mutex::new(Told { answer, detached: Vec::new(), asked: BTreeMap::new() })));
        let socket = folder.join("agent.sock");
        let listener = runtime.block_on(async { UnixListener::bind(&socket) }).expect("listen");
        let server = tonic::transport::Server::builder().add_service(InterfacesServer::new(said.clone()));
        runtime.spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
        Self { said, _runtime: runtime }
    }

    pub fn answer(&self, answer: Answer) {
        self.said.lock().answer = answer.map(|interface| vec![interface]);
    }

    /// Of a pod with several.
    pub fn answer_all(&self, interfaces: &[Interface]) {
        self.said.lock().answer = Ok(interfaces.to_vec());
    }

    /// What it was asked for last, by our own annotation.
    pub fn asked(&self) -> String {
        self.said.lock().asked.get("metalplane.io/networks").cloned().unwrap_or_default()
    }

    /// The sandboxes of which it was told that they have ended.
    pub fn detached(&self) -> Vec<String> {
        self.said.lock().detached.clone()
    }
}

#[tonic::async_trait]
impl Interfaces for Said {
    async fn attach(&self, request: Request<AttachRequest>) -> Result<Response<AttachResponse>, Status> {
        let asked = request.into_inner();
        assert_eq!(asked.pod_uid, "uid-1");
        let subnet = asked.annotations.get("metalplane.io/subnet");
        assert!(subnet.is_none_or(|subnet| subnet == "blue"), "{subnet:?}");
        let mut told = self.lock();
        told.asked = asked.annotations.into_iter().collect();
        let interfaces = told.answer.clone()?;
        Ok(Response::new(AttachResponse { interfaces }))
    }

    async fn detach(&self, request: Request<DetachRequest>) -> Result<Response<DetachResponse>, Status> {
        self.lock().detached.push(request.into_inner().container_id);
        Ok(Response::new(DetachResponse {}))
    }

    async fn state(&self, _: Request<StateRequest>) -> Result<Response<StateResponse>, Status> {
        Ok(Response::new(StateResponse { dpu_name: "node-1".to_owned(), version: String::new() }))
    }
}
