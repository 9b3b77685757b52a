"""The bus on RabbitMQ."""

from shared.bus.amqp.bus import AmqpBus

__all__ = ["AmqpBus"]
