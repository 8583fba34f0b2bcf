# Jobs of the test: what they have done is in a list.
require 'sidekiq'

def note(text)
  Sidekiq.redis { |redis| redis.rpush('done', text) }
end

class Plain
  include Sidekiq::Worker

  def perform(number)
    note("plain #{number}")
  end
end

class Urgent
  include Sidekiq::Worker
  sidekiq_options queue: 'urgent'

  def perform(word)
    note("urgent #{word}")
  end
end

# Fails the first time, and is tried again at once.
class Unsteady
  include Sidekiq::Worker
  sidekiq_options retry: 2
  sidekiq_retry_in { 0 }

  def perform(key)
    count = Sidekiq.redis { |redis| redis.incr("tries:#{key}") }
    raise 'not yet' if count == 1

    note("unsteady #{key}")
  end
end

class Hopeless
  include Sidekiq::Worker
  sidekiq_options retry: 0

  def perform
    raise 'never'
  end
end
