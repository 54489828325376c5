from langchain_rageval.run.retry import CircuitBreaker

MODEL = object()


def test_it_opens_for_a_model_after_fifty_connection_failures_in_a_row():
    breaker = CircuitBreaker()
    breaker.record(object(), None)
    for _ in range(49):
        breaker.record(MODEL, ConnectionRefusedError())
    assert not breaker.is_open(MODEL)
    breaker.record(MODEL, ConnectionRefusedError())
    assert breaker.is_open(MODEL)
    assert not breaker.is_open(object())


def test_a_success_or_another_error_closes_it():
    for outcome in (None, ValueError()):
        breaker = CircuitBreaker()
        for _ in range(50):
            breaker.record(MODEL, ConnectionRefusedError())
        breaker.record(MODEL, outcome)
        assert not breaker.is_open(MODEL)
