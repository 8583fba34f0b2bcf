# Sidekiq with its defaults: jobs now, later, again, and given up, by a process of its own.
require_relative 'jobs'
require 'sidekiq/api'

def check(is_so, what)
  abort("not as it should be: #{what}") unless is_so
end

def eventually(what, seconds = 60)
  (seconds * 20).times do
    return if yield
    sleep 0.05
  end
  abort("never: #{what}; #{Sidekiq::Stats.new.instance_variable_get(:@stats)}")
end

def done
  Sidekiq.redis { |redis| redis.lrange('done', 0, -1) }
end

Sidekiq.redis(&:flushdb)
200.times { |number| Plain.perform_async(number) }
Sidekiq::Client.push_bulk('class' => Plain, 'args' => (200...400).map { |number| [number] })
Urgent.perform_async('now')
Unsteady.perform_async('a')
Hopeless.perform_async
later = Plain.perform_in(2, 'later')
gone = Plain.perform_in(3600, 'never')
check(Sidekiq::Queue.new.size == 402, 'the queue')
check(Sidekiq::ScheduledSet.new.size == 2, 'the scheduled set')
check(Sidekiq::ScheduledSet.new.find_job(later).at > Time.now, 'a scheduled job')
check(Sidekiq::ScheduledSet.new.find_job(gone).delete == true, 'a scheduled job that is deleted')

server = spawn('sidekiq', '-r', './jobs.rb', '-c', '5', '-q', 'urgent,2', '-q', 'default', '-t', '2', out: File::NULL, err: File::NULL)
begin
  eventually('all jobs are done') { done.size == 403 }
  check(done.uniq.size == 403, 'each job is done once')
  check(done.include?('plain later') && done.include?('unsteady a') && done.include?('urgent now'), 'all kinds')
  eventually('the hopeless one is dead') { Sidekiq::DeadSet.new.size == 1 }
  eventually('nothing waits') { Sidekiq::Queue.all.sum(&:size).zero? && Sidekiq::RetrySet.new.size.zero? }
  stats = Sidekiq::Stats.new
  eventually('the figures') { (stats = Sidekiq::Stats.new).processed == 405 && stats.failed == 2 }
  processes = Sidekiq::ProcessSet.new
  check(processes.size == 1 && processes.first['concurrency'] == 5, 'the process is known')
  check(Sidekiq::Workers.new.size.zero?, 'nobody works')
ensure
  Process.kill('TERM', server)
  Process.wait(server)
end
puts "Sidekiq #{Sidekiq::VERSION}"
