"""What a startd does for itself beside jobs: cron, benchmarks, backfill."""
