"""What operators are given: alerting rules and a dashboard."""
