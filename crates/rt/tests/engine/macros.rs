//! The attributes `main` and `test`, and `JoinSet`.

use std::time::Duration;

use superpoll_rt::{Handle, JoinError, JoinSet, spawn, time};

#[superpoll_rt::test]
async fn a_test_runs_on_an_engine() {
    assert_eq!(spawn(async { 7 }).await.unwrap(), 7);
}

#[superpoll_rt::test(workers = 3, backend = "epoll")]
async fn options_are_those_of_the_builder() -> Result<(), Box<dyn std::error::Error>> {
    assert_eq!(Handle::current()?.engines(), 3);
    Ok(())
}

#[superpoll_rt::test(backend = "kqueue")]
#[should_panic(expected = "kqueue")]
async fn an_unknown_back_end_is_named() {}

#[superpoll_rt::test]
#[should_panic(expected = "on purpose")]
async fn other_attributes_stay() {
    panic!("on purpose");
}

#[superpoll_rt::test]
async fn results_come_in_the_order_in_which_tasks_end() {
    let mut tasks = JoinSet::new();
    for wait in [30, 10, 20] {
        tasks.spawn(async move {
            for _ in 0..wait {
                superpoll_rt::yield_now().await;
            }
            wait
        });
    }
    let mut order = Vec::new();
    while let Some(result) = tasks.join_next().await {
        order.push(result.unwrap());
    }
    assert_eq!((order, tasks.is_empty()), (vec![10, 20, 30], true));
}

#[superpoll_rt::test]
async fn a_set_tells_of_panics_and_aborts_what_is_left() {
    let alive = std::rc::Rc::new(());
    let mut tasks = JoinSet::new();
    tasks.spawn(async { panic!("one of them") });
    let result = tasks.join_next().await.unwrap();
    assert_eq!(result.unwrap_err().panic_message(), Some("one of them"));
    for _ in 0..3 {
        let own = alive.clone();
        tasks.spawn(async move {
            let _own = own;
            time::sleep(Duration::from_secs(1000)).await;
        });
    }
    tasks.abort_all();
    assert!(matches!(tasks.join_next().await, Some(Err(JoinError::Cancelled))));
    assert_eq!(tasks.len(), 2);
    let own = alive.clone();
    tasks.spawn(async move {
        let _own = own;
        std::future::pending::<()>().await;
    });
    superpoll_rt::yield_now().await;
    drop(tasks);
    while std::rc::Rc::strong_count(&alive) > 1 {
        superpoll_rt::yield_now().await;
    }
}

#[superpoll_rt::test]
async fn tasks_of_a_set_that_is_detached_run_on() {
    let (sender, receiver) = async_channel::bounded(1);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { sender.send(7).await.unwrap() });
    tasks.detach_all();
    assert_eq!((receiver.recv().await.unwrap(), tasks.len()), (7, 0));
}
