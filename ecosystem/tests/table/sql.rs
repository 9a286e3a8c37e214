//! sqlx, with SQLite and against a PostgreSQL server.

use std::net::SocketAddr;

use futures_util::TryStreamExt;
use sqlx::Row as _;
use superpoll_ecosystem::{Row, postgres};

pub(crate) fn rows() -> impl Iterator<Item = Row> {
    [
        Row::new("sqlx", "SQLite", sqlite),
        Row::with_server("sqlx", "PostgreSQL, transactions", postgres, transactions),
    ]
    .into_iter()
}

async fn sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}?mode=rwc", folder.path().join("data").display());
    let pool = sqlx::SqlitePool::connect(&url).await.unwrap();
    sqlx::query("CREATE TABLE item (name TEXT, price INTEGER)").execute(&pool).await.unwrap();
    for price in 0..10 {
        let insert = sqlx::query("INSERT INTO item VALUES (?, ?)").bind("tea").bind(price);
        insert.execute(&pool).await.unwrap();
    }
    let row = sqlx::query("SELECT sum(price) FROM item").fetch_one(&pool).await.unwrap();
    assert_eq!(row.get::<i64, _>(0), 45);
    pool.close().await;
}

async fn transactions(server: SocketAddr) {
    let url = format!("postgres://tester@{server}/postgres");
    let pool = sqlx::PgPool::connect(&url).await.unwrap();
    sqlx::query("DROP TABLE IF EXISTS item").execute(&pool).await.unwrap();
    sqlx::query("CREATE TABLE item (price BIGINT)").execute(&pool).await.unwrap();
    for is_kept in [false, true] {
        let mut transaction = pool.begin().await.unwrap();
        for price in 0..10_i64 {
            let insert = sqlx::query("INSERT INTO item VALUES ($1)").bind(price);
            insert.execute(&mut *transaction).await.unwrap();
        }
        match is_kept {
            true => transaction.commit().await.unwrap(),
            false => transaction.rollback().await.unwrap(),
        }
    }
    let rows = sqlx::query("SELECT price FROM item ORDER BY price").fetch(&pool);
    let prices = rows.map_ok(|row| row.get::<i64, _>(0)).try_collect::<Vec<_>>().await.unwrap();
    assert_eq!(prices, (0..10).collect::<Vec<_>>());
    pool.close().await;
}
