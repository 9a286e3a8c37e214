//! redis and async-nats, against their servers.

use std::net::SocketAddr;

use ::redis::AsyncCommands;
use futures_util::StreamExt;
use superpoll_ecosystem::{Row, nats, redis};

pub(crate) fn rows() -> impl Iterator<Item = Row> {
    [
        Row::with_server("redis", "commands and subscriptions, `redis-server`", redis, keys),
        Row::with_server("async-nats", "messages and requests, `nats-server`", nats, subjects),
    ]
    .into_iter()
}

async fn keys(server: SocketAddr) {
    let client = ::redis::Client::open(format!("redis://{server}/")).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let _: () = connection.set("key", 42).await.unwrap();
    let value: i64 = connection.incr("key", 1).await.unwrap();
    assert_eq!(value, 43);
    let mut subscriber = client.get_async_pubsub().await.unwrap();
    subscriber.subscribe("news").await.unwrap();
    let mut news = subscriber.on_message();
    for number in 0..10 {
        let _: i64 = connection.publish("news", number).await.unwrap();
        let message = news.next().await.unwrap();
        assert_eq!(message.get_payload::<i64>().unwrap(), number);
    }
}

async fn subjects(server: SocketAddr) {
    let client = async_nats::connect(format!("nats://{server}")).await.unwrap();
    let mut news = client.subscribe("news").await.unwrap();
    let mut questions = client.subscribe("questions").await.unwrap();
    client.flush().await.unwrap();
    for number in 0..10 {
        client.publish("news", format!("{number}").into()).await.unwrap();
        assert_eq!(news.next().await.unwrap().payload, format!("{number}"));
    }
    let answering = client.clone();
    let answers = superpoll_rt::spawn(async move {
        let question = questions.next().await.unwrap();
        answering.publish(question.reply.unwrap(), "answer".into()).await.unwrap();
    });
    let answer = client.request("questions", "question".into()).await.unwrap();
    assert_eq!(answer.payload, "answer");
    answers.await.unwrap();
}
